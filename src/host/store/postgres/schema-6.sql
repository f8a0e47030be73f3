-- Version 6: a save is one call. The server plans what is inside a function once for each connection, a pooler in between or not.

-- Without a run, nobody has to be the one of the folder's host.
alter function askd.hold_folder(text, uuid) strict;

-- What goes along with a save: what others have to do for it, and its lines of the audit log.
create function askd.save_along(which uuid, effects text[], folders text[], times bigint[], lines text[]) returns void
language plpgsql as $$
begin
    if cardinality(effects) > 0 then
        insert into askd.owed (ask, effects, folder)
            select which, new.effects::jsonb, new.folder from unnest(effects, folders) as new (effects, folder);
    end if;
    if cardinality(times) > 0 then
        insert into askd.audit (ask, at, line)
            select which, new.at, new.line::json from unnest(times, lines) as new (at, line);
    end if;
end
$$;

-- Makes a row, if its group was given only so many asks before. `held`: the run that has to be the one of the folder's host.
create function askd.save_new(
    which uuid, of_group text, made_by uuid, what jsonb, held uuid, given bigint, code text,
    effects text[], folders text[], times bigint[], lines text[]
) returns setof bigint
language plpgsql as $$
begin
    perform askd.hold_folder(of_group, held);
    insert into askd.counts as counts (group_name, accepted) values (of_group, 1)
        on conflict (group_name) do update set accepted = counts.accepted + 1 where counts.accepted = given;
    if found then
        perform askd.save_along(which, effects, folders, times, lines);
        return query insert into askd.asks (id, group_name, operations, record, short_id)
            values (which, of_group, array[made_by], what, code) returning revision;
    end if;
end
$$;

-- Replaces the version of a row that the operation `replaces` made. Null: the server is in another era.
create function askd.save_over(
    which uuid, of_group text, made_by uuid, what jsonb, held uuid, replaces uuid, in_era uuid, retired boolean,
    effects text[], folders text[], times bigint[], lines text[]
) returns setof bigint
language plpgsql as $$
begin
    perform askd.hold_folder(of_group, held);
    if not exists (select from askd.era where mark = in_era) then
        return next null;
        return;
    end if;
    return query update askd.asks as asks set revision = asks.revision + 1, record = what, changed = pg_current_xact_id(),
            operations = (array_prepend(made_by, asks.operations))[1:8], settled = asks.settled or retired
        where asks.id = which and asks.group_name = of_group and asks.operations[1] = replaces
        returning asks.revision;
    if found then
        perform askd.save_along(which, effects, folders, times, lines);
    end if;
end
$$;
