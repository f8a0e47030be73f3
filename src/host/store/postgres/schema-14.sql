-- Version 14: what keeps a run from being overtaken is a lock without a row. All transactions of a run had the row of its lease locked, and
-- wrote to it for that: with several at a time each cost twice as much.

-- The lock of a run: shared by whoever saves as that run, and exclusive for whoever ends it.
create function askd.lock_of(which uuid) returns bigint language sql immutable as $$
    select hashtextextended(which::text, 7161075)
$$;

-- Raises AK001 if this run was overtaken, and keeps it from being so until the transaction ends. What committed while this waited for the
-- lock shows only in `read committed`.
create or replace function askd.hold_run(by_run uuid) returns void language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(askd.lock_of(by_run));
    perform from askd.runs where run = by_run;
    if not found then
        raise exception 'another askd has taken over' using errcode = 'AK001';
    end if;
end
$$;

create function askd.end_run() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock(askd.lock_of(old.run));
    return old;
end
$$;
create trigger end_run before delete on askd.runs for each row execute function askd.end_run();

-- As in version 13. A run that is saving something keeps its lease for now.
create or replace function askd.take_groups(by_run uuid, names text[], leads boolean, revokes boolean, lease float8) returns setof text
language plpgsql as $$
declare
    late uuid;
begin
    -- One takes at a time, and sees what the one before has taken.
    perform pg_advisory_xact_lock(7161075);
    if not leads and askd.has_older(lease) then
        return;
    end if;
    -- Unless the server's clock was set, and nobody has had the time to renew a lease.
    if revokes and exists (select from askd.runs where run = by_run and until > now()) then
        for late in select run from askd.runs where until < now() and run <> by_run
            and exists (select from askd.held where held.run = runs.run)
        loop
            if pg_try_advisory_xact_lock(askd.lock_of(late)) then
                delete from askd.runs where run = late and until < now();
            end if;
        end loop;
    end if;
    -- What was copied has no count, and without one nobody would find it once the row in `held` is gone.
    insert into askd.counts (group_name, accepted) select name, 0 from unnest(names) as new (name) order by name on conflict do nothing;
    return query insert into askd.held as held (group_name, run) select name, by_run from unnest(names) as new (name) order by name
        on conflict (group_name) do update set run = excluded.run
            where not exists (select from askd.runs where runs.run = held.run)
        returning group_name;
end
$$;
