-- Version 5: all daemons together keep the rates of a platform.

-- When the next call may be made, for each channel, method, and chat.
create table askd.rates (
    what text primary key,
    next_at timestamptz not null
);
