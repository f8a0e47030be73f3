-- Version 17: saves that share a transaction come as columns, and those that replace something are one statement. As rows of one JSON document
-- they were parsed once more than needed, and read from it four times.

-- What `askd.save_all` of version 16 does. The columns of `ids` to `retires` have one value for each save; those of `owed_by` to `folders` one for
-- each row of `askd.owed`, and those of `noted_by` to `lines` one for each line of the audit log, first the save it belongs to, counted from 1.
create function askd.save_each(
    ids uuid[], groups text[], made_by uuid[], records text[], hosts uuid[], holders uuid[], givens bigint[], codes text[], replaced uuid[],
    eras uuid[], retires boolean[], owed_by bigint[], effects text[], folders text[], noted_by bigint[], times bigint[], lines text[]
) returns table (place bigint, stored bigint)
language plpgsql as $$
declare
    save record;
    era uuid := (select mark from askd.era);
    nobody constant uuid := '00000000-0000-0000-0000-000000000000';
    places bigint[] := '{}';
    many bigint;
begin
    -- As `hold_folder` and `hold_group` do for one group.
    perform from (select distinct of_group, host from unnest(groups, hosts) as saves (of_group, host)) as whose
        join askd.pins as pins on pins.group_name = whose.of_group
        join askd.nodes as nodes on nodes.node = pins.node and nodes.run = whose.host
        where whose.host <> nobody for key share of pins, nodes;
    get diagnostics many = row_count;
    if many < (select count(distinct (of_group, host)) from unnest(groups, hosts) as saves (of_group, host) where host <> nobody) then
        raise exception 'another host serves this folder' using errcode = 'AK002';
    end if;
    perform askd.hold_folder(of_group, host) from unnest(groups, hosts) as saves (of_group, host) where host = nobody;
    if exists (
        select from unnest(groups, holders) as saves (of_group, holder) where holder is not null
            and not exists (select from askd.held where held.group_name = of_group and held.run = holder)
    ) then
        raise exception 'another daemon holds this group' using errcode = 'AK003';
    end if;

    for save in select * from unnest(ids, groups, made_by, records, givens, codes) with ordinality
            as saves (which, of_group, made_by, what, given, code, nth) where given is not null order by nth
    loop
        insert into askd.counts as counts (group_name, accepted) values (save.of_group, 1)
            on conflict (group_name) do update set accepted = counts.accepted + 1, changed = pg_current_xact_id()
                where counts.accepted = save.given;
        continue when not found;
        place := save.nth;
        insert into askd.asks (id, group_name, operations, record, short_id)
            values (save.which, save.of_group, array[save.made_by], save.what::jsonb, save.code) returning revision into stored;
        places := places || place;
        return next;
    end loop;

    for place, stored in
        update askd.asks as asks set revision = asks.revision + 1, record = new.what::jsonb, changed = pg_current_xact_id(),
                operations = (array_prepend(new.made_by, asks.operations))[1:8], settled = asks.settled or new.retired
            from unnest(ids, groups, made_by, records, replaced, eras, retires) with ordinality
                as new (which, of_group, made_by, what, replaces, in_era, retired, nth)
            where asks.id = new.which and asks.group_name = new.of_group and asks.operations[1] = new.replaces and new.in_era = era
            returning new.nth, asks.revision
    loop
        places := places || place;
        return next;
    end loop;
    -- Those that stand in `settled`, or that another one of these saves comes before; and those that are stale.
    for save in select * from unnest(ids, groups, made_by, records, replaced, eras, retires) with ordinality
            as saves (which, of_group, made_by, what, replaces, in_era, retired, nth)
            where replaces is not null and nth <> all(places) order by nth
    loop
        place := save.nth;
        stored := null;
        if save.in_era is distinct from era then
            return next;
            continue;
        end if;
        loop
            update askd.asks as asks set revision = asks.revision + 1, record = save.what::jsonb, changed = pg_current_xact_id(),
                    operations = (array_prepend(save.made_by, asks.operations))[1:8], settled = asks.settled or save.retired
                where asks.id = save.which and asks.group_name = save.of_group and asks.operations[1] = save.replaces
                returning asks.revision into stored;
            exit when found;
            exit when not askd.bring_back(save.which, save.replaces);
        end loop;
        continue when stored is null;
        places := places || place;
        return next;
    end loop;

    insert into askd.owed (ask, effects, folder, group_name)
        select ids[nth], effect::jsonb, nullif(folder, '*'), case when folder is null then groups[nth] end
        from unnest(owed_by, effects, folders) as along (nth, effect, folder) where nth = any(places);
    insert into askd.audit (ask, at, line)
        select ids[nth], at, line::json
        from unnest(noted_by, times, lines) as along (nth, at, line) where nth = any(places);
end
$$;
