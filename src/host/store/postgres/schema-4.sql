-- Version 4: what all daemons did is in one audit log.

-- `line` is kept as it was written. It has no text of questions or answers.
create table askd.audit (
    number bigint generated always as identity,
    ask uuid not null,
    at bigint not null,
    line json not null
);
create index audit_of_ask on askd.audit (ask);
-- Lines come in the order of time, nearly.
create index audit_by_time on askd.audit using brin (at);
