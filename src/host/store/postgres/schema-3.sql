-- Version 3: the folder of each group is served by one host.
--
-- `unique (group_name, node)` makes the host part of a key: a move waits for the writes of the host that serves the folder, as a
-- takeover does for the leader's.
create table askd.pins (
    group_name text primary key,
    node text not null,
    -- Milliseconds: what was told in the folder before then may not lie there.
    strange bigint,
    changed xid8 not null default pg_current_xact_id(),
    unique (group_name, node)
);
create index pins_changed on askd.pins (changed);

-- Every host that ever had a daemon: when that was heard of last, and what the computer's boot is called as long as a loss of power
-- would take something from its folders.
create table askd.hosts (
    node text primary key,
    heard timestamptz not null,
    boot text
);

-- Whose folder it concerns. Null: the leader does it.
alter table askd.owed add column folder text;

-- Raises AK002 unless this run is the one of the host that serves that folder, and keeps it so until the transaction ends.
create function askd.hold_folder(what text, by_run uuid) returns void language plpgsql as $$
begin
    perform from askd.pins as pins join askd.nodes as nodes on nodes.node = pins.node
        where pins.group_name = what and nodes.run = by_run for key share;
    if not found then
        raise exception 'another host serves this folder' using errcode = 'AK002';
    end if;
end
$$;
