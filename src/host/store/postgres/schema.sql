-- The tables of askd, version 1. Each later version adds a file of its own, and only adds.

create schema if not exists askd;

-- One row: the version of these tables, and the newest format of records that was ever written.
create table askd.format (
    one boolean primary key default true check (one),
    tables integer not null,
    records integer not null
);

-- Who serves. Writers hold the row for key share, and a takeover changes `fence`, which is part of a key: so a takeover waits
-- for the writes that are under way, and a renewal does not.
create table askd.groups (
    name text primary key,
    holder uuid not null,
    fence bigint not null,
    until timestamptz not null,
    node text not null,
    home uuid not null,
    unique (name, fence)
);

-- Raises AK001 unless this run still holds that lease, and keeps it from being taken over until the transaction ends.
create function askd.hold(what text, run uuid, ticket bigint) returns void language plpgsql as $$
begin
    perform from askd.groups where name = what and holder = run and fence = ticket for key share;
    if not found then
        raise exception 'another askd has taken over' using errcode = 'AK001';
    end if;
end
$$;

-- Open asks and kept outcomes. `operation` names the write that stored the row last, so that a commit whose reply was lost can
-- be looked up.
create table askd.asks (
    id uuid primary key,
    group_name text not null,
    settled boolean not null default false,
    revision bigint not null default 1,
    operation uuid not null,
    record jsonb not null
);
create index asks_in_order on askd.asks (settled, id);

-- Records that were taken out for a person to look at.
create table askd.set_aside (
    id uuid not null,
    group_name text not null,
    at timestamptz not null default now(),
    record jsonb not null
);

-- Questions that may be asked again.
create table askd.allowed (
    group_name text not null,
    question text not null,
    at bigint not null,
    by jsonb not null,
    primary key (group_name, question)
);

-- Copies of requests that could not be asked.
create table askd.rejected (
    group_name text not null,
    name text not null,
    at timestamptz not null default clock_timestamp(),
    bytes bytea not null,
    primary key (group_name, name)
);

-- What is remembered beside the asks.
create table askd.documents (
    name text primary key,
    bytes bytea not null
);

-- PostgreSQL empties it when it recovers from a crash, and on a standby that is promoted: what was committed without waiting for
-- the disk may be lost then. Its one row names the time since which nothing was lost.
create unlogged table askd.era (
    one boolean primary key default true check (one),
    mark uuid not null
);

insert into askd.format (tables, records) values (1, 0);
