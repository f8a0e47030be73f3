-- Version 18: what the WhatsApp channel remembers of people stands in entries that any daemon changes, and no longer in documents that the
-- leader alone has (`memory.rs`).

-- The entries of what were documents: `number` is the business's, and `section` and `key` are where the entry stood in it. Without a `value`
-- it was taken out; such a row goes once every daemon has had the time to hear of it.
create table askd.memory (
    name text not null,
    number text not null,
    section text not null,
    key text not null,
    value text,
    changed xid8 not null default pg_current_xact_id(),
    at timestamptz not null default now(),
    primary key (name, number, section, key)
);
create index memory_changed on askd.memory (changed);
create index memory_out on askd.memory (at) where value is null;

-- Whether the entries stand there, or still in documents.
alter table askd.format add column shares_memory boolean not null default false;

-- Whether documents may become entries: not while a run is there, or was within the last hour, that reads only documents. Once this has said
-- yes, such a run is refused.
create function askd.may_share_memory() returns boolean language plpgsql as $$
begin
    if (select needs from askd.format) >= 18 then
        return true;
    end if;
    -- Runs join one at a time.
    perform pg_advisory_xact_lock(7161074);
    delete from askd.nodes where heard < now() - interval '1 hour';
    if exists (select from askd.nodes where knows < 18) then
        return false;
    end if;
    update askd.format set needs = 18;
    return true;
end
$$;

-- Stores entries of a number. An entry is replaced only if it still has the value that its daemon knows (`before`). Otherwise another daemon
-- was faster, and its value stays.
create function askd.remember(whose text, names text[], sections text[], keys text[], before text[], contents text[]) returns void
language plpgsql as $$
begin
    -- In one order, so that two daemons do not wait for each other.
    perform from askd.memory join unnest(names, sections, keys) as new (name, section, key) using (name, section, key)
        where memory.number = whose order by name, section, key for update of memory;
    update askd.memory as memory set value = new.value, changed = pg_current_xact_id(), at = now()
        from unnest(names, sections, keys, before, contents) as new (name, section, key, known, value)
        where memory.number = whose and memory.name = new.name and memory.section = new.section and memory.key = new.key
            and memory.value is not distinct from new.known and memory.value is distinct from new.value
            -- An element of a list that was taken out does not come back.
            and (memory.value is not null or not memory.key ^@ '[]');
    insert into askd.memory (name, number, section, key, value)
        select name, whose, section, key, value
            from unnest(names, sections, keys, before, contents) as new (name, section, key, known, value)
            where known is null and value is not null order by name, section, key
        on conflict do nothing;
    if array_position(contents, null) is not null then
        delete from askd.memory where ctid = any (array(
            select ctid from askd.memory where value is null and at < now() - interval '1 hour' limit 1000 for update skip locked));
    end if;
end
$$;

-- Puts a document together from its entries. A field with a single value has the key `=`; the keys of list elements begin with `[]`. Returns
-- no row if there are no entries.
create function askd.remembered(which text) returns setof text language sql as $$
    select json_build_object('v', 2, 'numbers', json_object_agg(number, known))::text from (
        select number, json_object_agg(section, entries) as known from (
            select number, section, case
                    when bool_and(key = '=') then json_agg(value::json) -> 0
                    when bool_and(key ^@ '[]') then json_agg(value::json order by key)
                    else json_object_agg(key, value::json)
                end as entries
                from askd.memory where name = which and value is not null group by number, section
        ) as sections group by number
    ) as numbers
    having count(*) > 0
$$;

-- Makes documents of all entries, for whoever is alone and knows documents only. The next leader makes entries of them.
create function askd.fold_memory() returns void language plpgsql as $$
begin
    insert into askd.documents (name, bytes)
        select name, convert_to(askd.remembered(name), 'UTF8') from (select distinct name from askd.memory where value is not null) as known
        on conflict (name) do update set bytes = excluded.bytes, changed = excluded.changed;
    delete from askd.memory;
    update askd.format set shares_memory = false;
end
$$;
