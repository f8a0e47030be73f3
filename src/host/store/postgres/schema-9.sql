-- Version 9: a look reads how many asks a group was given only if that has changed, and few daemons hold a connection of Socket Mode.

alter table askd.counts add column changed xid8 not null default pg_current_xact_id();
create index counts_changed on askd.counts (changed);

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
        perform askd.save_along(which, effects, folders, times, lines);
        return query insert into askd.asks (id, group_name, operations, record, short_id)
            values (which, of_group, array[made_by], what, code) returning revision;
    end if;
end
$$;

-- Who holds one of the few connections that a platform allows.
create table askd.seats (
    what text not null,
    seat integer not null,
    run uuid not null,
    until timestamptz not null,
    primary key (what, seat)
);
