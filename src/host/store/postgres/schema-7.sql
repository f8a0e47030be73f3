-- Version 7: daemons of two versions of askd share the tables.

-- The oldest version of these tables that a daemon may know and still use them. What only adds leaves it as it is.
alter table askd.format add column needs integer not null default 7;

-- The newest format of records that a run reads.
alter table askd.nodes add column reads integer not null default 3;
