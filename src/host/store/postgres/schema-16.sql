-- Version 16: saves that share a transaction also share the statements that store what goes along with them.

-- Most records are above the 2 kB from which PostgreSQL compresses, which took longer than to store them as they are. It still does so for
-- those that are much longer, and for those that move to `settled`.
alter table askd.asks set (toast_tuple_target = 8160);

-- As in version 13, but `save_new` and `save_along` looked for things that are known here, once for each save.
create or replace function askd.save_all(saves jsonb) returns table (place bigint, stored bigint)
language plpgsql as $$
declare
    save record;
    era uuid := (select mark from askd.era);
    places bigint[] := '{}';
begin
    perform askd.hold_folder(whose.of_group, whose.held), askd.hold_group(whose.of_group, whose.holder) from (
        select distinct of_group, held, holder from jsonb_to_recordset(saves) as save (of_group text, held uuid, holder uuid)
    ) as whose;
    place := -1;
    for save in select * from jsonb_to_recordset(saves) as save (
        which uuid, of_group text, made_by uuid, what jsonb, given bigint, code text, replaces uuid, in_era uuid, retired boolean
    ) loop
        place := place + 1;
        if save.given is not null then
            insert into askd.counts as counts (group_name, accepted) values (save.of_group, 1)
                on conflict (group_name) do update set accepted = counts.accepted + 1, changed = pg_current_xact_id()
                    where counts.accepted = save.given;
            continue when not found;
            insert into askd.asks (id, group_name, operations, record, short_id)
                values (save.which, save.of_group, array[save.made_by], save.what, save.code) returning revision into stored;
        elsif save.in_era is distinct from era then
            stored := null;
            return next;
            continue;
        else
            loop
                update askd.asks as asks set revision = asks.revision + 1, record = save.what, changed = pg_current_xact_id(),
                        operations = (array_prepend(save.made_by, asks.operations))[1:8], settled = asks.settled or save.retired
                    where asks.id = save.which and asks.group_name = save.of_group and asks.operations[1] = save.replaces
                    returning asks.revision into stored;
                exit when found;
                exit when not askd.bring_back(save.which, save.replaces);
            end loop;
            continue when stored is null;
        end if;
        places := places || place;
        return next;
    end loop;
    insert into askd.owed (ask, effects, folder, group_name)
        select which, along.effect::jsonb, nullif(along.folder, '*'), case when along.folder is null then of_group end
        from rows from (jsonb_to_recordset(saves) as (which uuid, of_group text, effects text[], folders text[])) with ordinality
                as save (which, of_group, effects, folders, nth),
            unnest(effects, folders) as along (effect, folder)
        where nth - 1 = any(places);
    insert into askd.audit (ask, at, line)
        select which, along.at, along.line::json
        from rows from (jsonb_to_recordset(saves) as (which uuid, times bigint[], lines text[])) with ordinality
                as save (which, times, lines, nth),
            unnest(times, lines) as along (at, line)
        where nth - 1 = any(places);
end
$$;
