-- Version 12: what one daemon holds for a taker, no other one hands out.

create table askd.holds (
    what text primary key,
    taker text not null,
    until timestamptz not null,
    -- It counts only while this run lives. Null: however its daemon fares.
    run uuid
);

-- Holds something for so many seconds. Null: it is the taker's now. Else for how many more seconds another one has it.
create function askd.take_hold(of_what text, by_taker text, seconds float8, by_run uuid, lease float8) returns float8
language plpgsql as $$
declare
    remains float8;
begin
    insert into askd.holds as held (what, taker, until, run)
        values (of_what, by_taker, now() + make_interval(secs => seconds), by_run)
        on conflict (what) do update set taker = excluded.taker, until = excluded.until, run = excluded.run
            where held.taker = by_taker or held.until < now() or held.run is not null and not exists (
                select from askd.nodes where nodes.run = held.run and heard > now() - make_interval(secs => lease));
    if not found then
        select greatest(extract(epoch from until - now()), 0) into remains from askd.holds where what = of_what;
        return coalesce(remains, 0);
    end if;
    return null;
end
$$;
