-- Version 8: saves that come together share a transaction.

-- Stores rows, one after the other: one with `given` as `save_new` does, any other as `save_over`. Returns the place of each row that
-- was stored, from 0, and its new revision. Null: the server is in another era than that save.
create function askd.save_all(saves jsonb) returns table (place bigint, stored bigint)
language plpgsql as $$
declare
    save record;
    era uuid := (select mark from askd.era);
begin
    perform askd.hold_folder(folder.of_group, folder.held)
        from (select distinct of_group, held from jsonb_to_recordset(saves) as save (of_group text, held uuid)) as folder;
    place := -1;
    for save in select * from jsonb_to_recordset(saves) as save (
        which uuid, of_group text, made_by uuid, what jsonb, given bigint, code text, replaces uuid, in_era uuid, retired boolean,
        effects text[], folders text[], times bigint[], lines text[]
    ) loop
        place := place + 1;
        if save.given is not null then
            select * into stored from askd.save_new(save.which, save.of_group, save.made_by, save.what, null, save.given, save.code,
                save.effects, save.folders, save.times, save.lines);
            if found then
                return next;
            end if;
        elsif save.in_era is distinct from era then
            stored := null;
            return next;
        else
            update askd.asks as asks set revision = asks.revision + 1, record = save.what, changed = pg_current_xact_id(),
                    operations = (array_prepend(save.made_by, asks.operations))[1:8], settled = asks.settled or save.retired
                where asks.id = save.which and asks.group_name = save.of_group and asks.operations[1] = save.replaces
                returning asks.revision into stored;
            if found then
                if cardinality(save.effects) + cardinality(save.times) > 0 then
                    perform askd.save_along(save.which, save.effects, save.folders, save.times, save.lines);
                end if;
                return next;
            end if;
        end if;
    end loop;
end
$$;
