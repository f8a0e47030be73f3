-- Version 15: what a client of MCP by URL shows or says counts at every daemon, whichever one it says it to (`calls.rs`).

-- Calls of a session whose outcome is on its way to their client, or that their client has cancelled.
create table askd.calls (
    number bigint generated always as identity primary key,
    group_name text not null,
    taker text not null,
    -- The id that the client got when it introduced itself; empty without one. Each client of a session counts its calls by itself, and
    -- those without an id may use the same numbers.
    client text not null,
    call text not null,
    -- What it was sent. Null: it is cancelled, and was sent nothing before.
    request_id text,
    -- Who sent it, and knows whether its connection was reset.
    run uuid not null,
    at timestamptz not null default now()
);
create index calls_by_taker on askd.calls (taker);

-- Sessions that their clients have ended.
create table askd.ended (
    group_name text not null,
    session text not null,
    at timestamptz not null default now(),
    primary key (group_name, session)
);
