-- Version 2: several daemons take calls at once, and the leader does what follows.
--
-- `changed` names the transaction that wrote a row last. A daemon that knows what was committed before the oldest transaction
-- that still ran at its last look reads the rows that were changed by that one or a later one: it misses none, because the
-- number of a transaction that commits late is not below that mark.

-- The last eight writes of a row, the newest first: whether a commit whose reply was lost was stored shows even after others.
alter table askd.asks
    add column operations uuid[] not null default '{}',
    add column short_id text,
    add column changed xid8 not null default pg_current_xact_id(),
    alter column operation drop not null;
update askd.asks set operations = array[operation];
create index asks_changed on askd.asks (changed);
-- No two new questions have one code, even if two daemons make them at once.
create unique index asks_short on askd.asks (short_id) where not settled;

alter table askd.allowed add column changed xid8 not null default pg_current_xact_id();
alter table askd.documents add column changed xid8 not null default pg_current_xact_id();

-- How many asks each group was given. Whoever stores a new one has to know of all before it.
create table askd.counts (
    group_name text primary key,
    accepted bigint not null
);

-- Asks that are gone, for the daemons that still know them: for some minutes.
create table askd.gone (
    id uuid primary key,
    record jsonb not null,
    changed xid8 not null default pg_current_xact_id(),
    at timestamptz not null default now()
);
create index gone_changed on askd.gone (changed);

-- What steps of other daemons ask the leader to do. A new leader finds it out from the asks themselves.
create table askd.owed (
    number bigint generated always as identity primary key,
    ask uuid not null,
    effects jsonb not null
);

-- Verified webhooks of platforms whose messages the leader reads.
create table askd.webhooks (
    number bigint generated always as identity primary key,
    channel text not null,
    body bytea not null
);

-- Which calls over HTTP still wait, as far as their daemon knows.
create table askd.waits (
    run uuid not null,
    group_name text not null,
    request_id text not null,
    until timestamptz not null,
    primary key (run, group_name, request_id)
);
create index waits_by_request on askd.waits (group_name, request_id);

-- The daemons that are there, by the id of their run.
create table askd.nodes (
    run uuid primary key,
    node text not null,
    home uuid not null,
    version text not null,
    since timestamptz not null default now(),
    heard timestamptz not null
);
