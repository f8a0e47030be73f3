-- Version 13: each group is held by one run, which does what the steps of the group's asks ask for (`holding.rs`).

-- The lease of each run. A run whose row is gone was overtaken: it saves nothing any more, and comes back as another one.
create table askd.runs (
    run uuid primary key,
    node text not null,
    home uuid not null,
    until timestamptz not null,
    -- It works, and may be given groups: not before it has begun, and not once it stops.
    takes boolean not null default false
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

-- Raises AK003 unless this run holds the group. No lock: a run hands a group over only once nothing of it is in hand, and whoever takes
-- one from a run deletes the row of that run first, which `hold_run` keeps. But a failover can lose that a group was handed over.
create function askd.hold_group(what text, by_run uuid) returns void strict language plpgsql as $$
begin
    if not exists (select from askd.held where group_name = what and run = by_run) then
        raise exception 'another daemon holds this group' using errcode = 'AK003';
    end if;
end
$$;

-- Whether a daemon is there that knows of one lease only, of all groups.
create function askd.has_older(lease float8) returns boolean language sql as $$
    select exists (select from askd.nodes where knows < 13 and heard > now() - make_interval(secs => lease))
$$;

-- Has a run hold these groups, unless other runs do. `revokes`: runs whose leases are over lose what they hold, and all they would save.
-- Beside a daemon that knows of one lease only, whoever has that holds all groups. Returns those that it did not hold before.
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
    -- What was copied has no count, and without one nobody would find it once the row in `held` is gone.
    insert into askd.counts (group_name, accepted) select name, 0 from unnest(names) as new (name) order by name on conflict do nothing;
    return query insert into askd.held as held (group_name, run) select name, by_run from unnest(names) as new (name) order by name
        on conflict (group_name) do update set run = excluded.run
            where not exists (select from askd.runs where runs.run = held.run)
        returning group_name;
end
$$;

-- Hands groups of one run to another one. Returns whether that could have them.
create function askd.hand_over(from_run uuid, to_run uuid, names text[]) returns boolean language plpgsql as $$
begin
    perform pg_advisory_xact_lock(7161075);
    perform from askd.runs where run = to_run and takes and until > now() + interval '5 seconds' for key share;
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
    -- Others take no lock: they may wait for the row while a late leader, which keeps it, waits for the lock.
    if (select knows from askd.nodes where node = new.node order by heard desc limit 1) < 13 then
        -- Without a row it finds that another one leads, and tries again.
        if not pg_try_advisory_xact_lock(7161075)
            or exists (select from askd.held join askd.runs on runs.run = held.run where until > now())
        then
            return null;
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

-- `holder`: the run that has to hold the group.
create or replace function askd.save_all(saves jsonb) returns table (place bigint, stored bigint)
language plpgsql as $$
declare
    save record;
    era uuid := (select mark from askd.era);
begin
    perform askd.hold_folder(whose.of_group, whose.held), askd.hold_group(whose.of_group, whose.holder) from (
        select distinct of_group, held, holder from jsonb_to_recordset(saves) as save (of_group text, held uuid, holder uuid)
    ) as whose;
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
