-- Version 10: asks of which nothing can change any more stand in a table of their own (`settling.rs`).

-- The newest version of these tables that a run knows. Earlier ones do not say.
alter table askd.nodes add column knows integer not null default 9;

-- A run that does not know of rows that it needs must not join, whatever it saw when it looked at `format`.
create function askd.knows_enough() returns trigger language plpgsql as $$
begin
    if new.knows < (select needs from askd.format) then
        raise exception 'this askd is too old for the tables of the database';
    end if;
    return new;
end
$$;
create trigger knows_enough before insert on askd.nodes for each row execute function askd.knows_enough();

-- Kept outcomes, by the week in which they may be forgotten: `settled_20261123` has those of the week that begins on that Monday. An
-- ask stands here or in `asks`, and moves from one to the other within a transaction. `changed` is as it was there.
create table askd.settled (
    id uuid not null,
    group_name text not null,
    revision bigint not null,
    operations uuid[] not null,
    short_id text,
    record jsonb not null,
    changed xid8 not null,
    forget_at timestamptz not null,
    primary key (id, forget_at)
) partition by range (forget_at);
create index settled_changed on askd.settled (changed);
-- What may be forgotten in a week that has no table.
create table askd.settled_rest partition of askd.settled default;
create index settled_rest_in_order on askd.settled_rest (forget_at);

-- Since when an ask may be forgotten that was forgotten, and whose row is in `settled` until the table of its week is dropped. Nobody
-- reads that row any more. Null: the row is gone, and `record` says what it was.
alter table askd.gone add column forget_at timestamptz;
create index gone_in_order on askd.gone (forget_at) where forget_at is not null;

-- Whether asks may be moved: not while a run is there, or was within the last hour, that would not find them. From then on none may come.
create function askd.may_settle() returns boolean language plpgsql as $$
begin
    if (select needs from askd.format) >= 10 then
        return true;
    end if;
    -- Runs join one at a time.
    perform pg_advisory_xact_lock(7161074);
    delete from askd.nodes where heard < now() - interval '1 hour';
    if exists (select from askd.nodes where knows < 10) then
        return false;
    end if;
    update askd.format set needs = 10;
    return true;
end
$$;

-- Makes the tables of this week and of the next ones. Making one reads the rest under a lock, so none is made beside a large rest.
create function askd.make_weeks(ahead integer) returns void language plpgsql as $$
declare
    monday date;
    week text;
    span text[];
begin
    for nth in 0..ahead loop
        monday := date_trunc('week', now() at time zone 'UTC')::date + 7 * nth;
        week := to_char(monday, '"settled_"YYYYMMDD');
        span := array[monday || ' 00:00+00', monday + 7 || ' 00:00+00'];
        continue when to_regclass('askd.' || week) is not null or pg_relation_size('askd.settled_rest') > 64 * 1024 * 1024
            or exists (select from askd.settled_rest where forget_at >= span[1]::timestamptz and forget_at < span[2]::timestamptz);
        execute format('create table askd.%I (like askd.settled including all)', week);
        execute format('alter table askd.settled attach partition askd.%I for values from (%L) to (%L)', week, span[1], span[2]);
    end loop;
end
$$;

-- The tables of weeks, the oldest first.
create function askd.weeks() returns table (week text, monday date) language sql as $$
    select relname::text, to_date(right(relname, 8), 'YYYYMMDD')
        from pg_inherits join pg_class on pg_class.oid = inhrelid
        where inhparent = 'askd.settled'::regclass and relname ~ '^settled_[0-9]{8}$'
        order by 2
$$;

-- Drops the oldest table whose week is over, once all that it has was forgotten and every daemon has had the time to read what it was.
-- Nothing comes into such a table any more: what may be forgotten soon is not moved, and what was forgotten is not brought back.
create function askd.drop_week() returns setof text language plpgsql as $$
declare
    past text;
    kept boolean;
begin
    for past in select week from askd.weeks() where monday + 7 <= (now() at time zone 'UTC')::date loop
        execute format('select exists (select from askd.%I as past where not exists (select from askd.gone
            where gone.id = past.id and gone.forget_at is not null and gone.at < now() - interval ''10 minutes''))', past) into kept;
        if not kept then
            execute format('drop table askd.%I', past);
            return next past;
            return;
        end if;
    end loop;
end
$$;

-- Drops some of what was forgotten and might be before then. Returns how many.
create function askd.drop_forgotten(before timestamptz, most integer) returns bigint language plpgsql as $$
declare
    past uuid[] := array(select id from askd.gone where forget_at < before limit most);
begin
    delete from askd.settled where id = any(past) and exists (select from askd.gone where gone.id = settled.id and gone.forget_at is not null);
    delete from askd.gone where id = any(past) and forget_at is not null;
    return cardinality(past);
end
$$;

-- The same of those whose week has no table any more.
create function askd.drop_marks(most integer) returns bigint language sql as $$
    select askd.drop_forgotten(
        least((select min(monday) from askd.weeks())::timestamp, date_trunc('week', now() at time zone 'UTC')) at time zone 'UTC', most)
$$;

-- Moves asks, each if that operation was its last and it is not in use. `times`: when it may be forgotten, in milliseconds; what may be
-- within an hour stays. Returns how many were moved.
create function askd.settle(ids uuid[], made_by uuid[], times bigint[]) returns bigint language plpgsql as $$
declare
    ready uuid[];
begin
    ready := array(select asks.id
        from askd.asks join unnest(ids, made_by, times) as new (id, operation, at) on new.id = asks.id
        where asks.settled and asks.operations[1] = new.operation and to_timestamp(new.at / 1000.0) > now() + interval '1 hour'
        for update of asks skip locked);
    -- What was left there when the ask was made anew.
    delete from askd.settled where id = any(ready);
    delete from askd.gone where id = any(ready) and forget_at is not null;
    with moved as (delete from askd.asks where id = any(ready) returning *)
        insert into askd.settled (id, group_name, revision, operations, short_id, record, changed, forget_at)
            select moved.id, group_name, revision, operations, short_id, record, changed, to_timestamp(new.at / 1000.0)
                from moved join unnest(ids, times) as new (id, at) on new.id = moved.id;
    return cardinality(ready);
end
$$;

-- Moves an ask back that somebody is about to change, if that operation was its last. Null: whichever was.
create function askd.bring_back(which uuid, replaces uuid) returns boolean language plpgsql as $$
begin
    perform from askd.settled where id = which and (replaces is null or operations[1] = replaces) for update;
    if not found then
        return false;
    end if;
    -- A statement of its own, which sees what was forgotten while the first one waited.
    with back as (
        delete from askd.settled where id = which
            and not exists (select from askd.gone where gone.id = which and gone.forget_at is not null)
        returning *
    )
    insert into askd.asks (id, group_name, settled, revision, operations, short_id, record, changed)
        select id, group_name, true, revision, operations, short_id, record, changed from back
        on conflict (id) do nothing;
    return found;
end
$$;

-- Locks the row of an ask in `asks`, where it is brought if it is not there.
create function askd.have_here(which uuid) returns void language plpgsql as $$
begin
    perform from askd.asks where id = which for update;
    if not found then
        perform askd.bring_back(which, null);
    end if;
end
$$;

-- Whether that operation was among the last of an ask. Waits for whoever changes or moves it. No row: there is no such ask.
create function askd.is_stored(which uuid, made_by uuid) returns setof boolean language plpgsql as $$
begin
    for turn in 1..2 loop
        return query select made_by = any(operations) from askd.asks where id = which for update;
        exit when found;
        return query select made_by = any(operations) from askd.settled where id = which for update;
        exit when found;
    end loop;
end
$$;

-- Takes an ask out of the tables, and returns what it was.
create function askd.take(which uuid) returns table (taken uuid, of_group text, what jsonb) language plpgsql as $$
begin
    for turn in 1..2 loop
        return query delete from askd.asks where id = which returning id, group_name, record;
        if found then
            delete from askd.settled where id = which;
            return;
        end if;
        -- It may be moved or brought back meanwhile, but not twice.
        return query delete from askd.settled where id = which returning id, group_name, record;
        exit when found;
    end loop;
end
$$;

-- Forgets an ask. Once it may be, and its week has a table, its row goes with that table.
create function askd.forget(which uuid) returns void language plpgsql as $$
declare
    since timestamptz;
begin
    select forget_at into since from askd.settled
        where id = which and forget_at <= now() and tableoid <> 'askd.settled_rest'::regclass
            and not exists (select from askd.asks where id = which)
        for update;
    insert into askd.gone (id, record, forget_at)
        select which, 'null'::jsonb, since where since is not null
        union all select taken, what, null from askd.take(which) where since is null
        on conflict (id) do update
            set record = excluded.record, changed = excluded.changed, forget_at = excluded.forget_at, at = excluded.at;
end
$$;

create or replace function askd.save_all(saves jsonb) returns table (place bigint, stored bigint)
language plpgsql as $$
declare
    save record;
    era uuid := (select mark from askd.era);
begin
    perform askd.hold_folder(folder.of_group, folder.held)
        from (select distinct of_group, held from jsonb_to_recordset(saves) as save (of_group text, held uuid)) as folder;
    place := -1;
    for save in select * from jsonb_to_recordset(saves) as save (
        which uuid, of_group text, made_by uuid, what jsonb, given bigint, code text, replaces uuid, in_era uuid, retired boolean,
        effects text[], folders text[], times bigint[], lines text[]
    ) loop
        place := place + 1;
        if save.given is not null then
            select * into stored from askd.save_new(save.which, save.of_group, save.made_by, save.what, null, save.given, save.code,
                save.effects, save.folders, save.times, save.lines);
            if found then
                return next;
            end if;
        elsif save.in_era is distinct from era then
            stored := null;
            return next;
        else
            loop
                update askd.asks as asks set revision = asks.revision + 1, record = save.what, changed = pg_current_xact_id(),
                        operations = (array_prepend(save.made_by, asks.operations))[1:8], settled = asks.settled or save.retired
                    where asks.id = save.which and asks.group_name = save.of_group and asks.operations[1] = save.replaces
                    returning asks.revision into stored;
                exit when found;
                exit when not askd.bring_back(save.which, save.replaces);
            end loop;
            if found then
                if cardinality(save.effects) + cardinality(save.times) > 0 then
                    perform askd.save_along(save.which, save.effects, save.folders, save.times, save.lines);
                end if;
                return next;
            end if;
        end if;
    end loop;
end
$$;
