-- Version 13: each group is held by one run, which does what the steps of the group's asks ask for (`holding.rs`).

-- The lease of each run. A run whose row is gone was overtaken: it saves nothing any more, and comes back as another one.
create table askd.runs (
    run uuid primary key,
    node text not null,
    home uuid not null,
    until timestamptz not null
);

-- Which run holds each group, as long as that has its row in `runs`. A group that is not here was never held.
create table askd.held (
    group_name text primary key,
    run uuid not null
);
create index held_by_run on askd.held (run);

-- Whose holder does it, unless it concerns a folder. Null: the leader's.
alter table askd.owed add column group_name text;
create index owed_by_group on askd.owed (group_name) where folder is null;

-- Raises AK001 if this run was overtaken, and keeps it from being so until the transaction ends.
create function askd.hold_run(by_run uuid) returns void language plpgsql as $$
begin
    perform from askd.runs where run = by_run for key share;
    if not found then
        raise exception 'another askd has taken over' using errcode = 'AK001';
    end if;
end
$$;

-- Whether a daemon is there that knows of one lease only, of all groups.
create function askd.has_older(lease float8) returns boolean language sql as $$
    select exists (select from askd.nodes where knows < 13 and heard > now() - make_interval(secs => lease))
$$;

-- Has a run hold these groups, unless other runs do. `revokes`: runs whose leases are over lose what they hold, and all they would save.
-- Beside a daemon that knows of one lease only, whoever has that holds all groups. Returns those that it holds now.
create function askd.take_groups(by_run uuid, names text[], leads boolean, revokes boolean, lease float8) returns setof text
language plpgsql as $$
begin
    -- One takes at a time, and sees what the one before has taken.
    perform pg_advisory_xact_lock(7161075);
    if not leads and askd.has_older(lease) then
        return;
    end if;
    -- Unless the server's clock was set, and nobody has had the time to renew a lease.
    if revokes and exists (select from askd.runs where run = by_run and until > now()) then
        delete from askd.runs where run in (
            select run from askd.runs where until < now() and run <> by_run
                and exists (select from askd.held where held.run = runs.run)
                for update skip locked);
    end if;
    return query insert into askd.held as held (group_name, run) select name, by_run from unnest(names) as new (name) order by name
        on conflict (group_name) do update set run = excluded.run
            where held.run = excluded.run or not exists (select from askd.runs where runs.run = held.run)
        returning group_name;
end
$$;

-- Hands groups of one run to another one; null: to nobody. Returns whether that could have them.
create function askd.hand_over(from_run uuid, to_run uuid, names text[]) returns boolean language plpgsql as $$
begin
    perform pg_advisory_xact_lock(7161075);
    if to_run is null then
        delete from askd.held where run = from_run and group_name = any(names);
        return true;
    end if;
    perform from askd.runs where run = to_run and until > now() + interval '5 seconds' for key share;
    if not found then
        return false;
    end if;
    update askd.held set run = to_run where run = from_run and group_name = any(names);
    return true;
end
$$;

-- A daemon that knows of one lease only takes it for that of all groups. It does not get it while runs live that hold some of them.
create function askd.leads_alone() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' and new.holder = old.holder then
        return new;
    end if;
    perform pg_advisory_xact_lock(7161075);
    if (select knows from askd.nodes where node = new.node order by heard desc limit 1) < 13 then
        if exists (select from askd.held join askd.runs on runs.run = held.run where until > now()) then
            raise exception 'daemons of a later version still hold groups';
        end if;
        delete from askd.runs where until <= now();
    end if;
    return new;
end
$$;
create trigger leads_alone before insert or update on askd.groups for each row execute function askd.leads_alone();

-- The folder `*` says that the leader does it.
create or replace function askd.save_along(which uuid, effects text[], folders text[], times bigint[], lines text[]) returns void
language plpgsql as $$
begin
    if cardinality(effects) > 0 then
        insert into askd.owed (ask, effects, folder, group_name)
            select which, new.effects::jsonb, nullif(new.folder, '*'), case when new.folder is null then coalesce(
                (select group_name from askd.asks where id = which), (select group_name from askd.settled where id = which limit 1)) end
            from unnest(effects, folders) as new (effects, folder);
    end if;
    if cardinality(times) > 0 then
        insert into askd.audit (ask, at, line)
            select which, new.at, new.line::json from unnest(times, lines) as new (at, line);
    end if;
end
$$;

-- The row first: what goes along names its group.
create or replace function askd.save_new(
    which uuid, of_group text, made_by uuid, what jsonb, held uuid, given bigint, code text,
    effects text[], folders text[], times bigint[], lines text[]
) returns setof bigint
language plpgsql as $$
begin
    perform askd.hold_folder(of_group, held);
    insert into askd.counts as counts (group_name, accepted) values (of_group, 1)
        on conflict (group_name) do update set accepted = counts.accepted + 1, changed = pg_current_xact_id()
            where counts.accepted = given;
    if found then
        return query insert into askd.asks (id, group_name, operations, record, short_id)
            values (which, of_group, array[made_by], what, code) returning revision;
        perform askd.save_along(which, effects, folders, times, lines);
    end if;
end
$$;
