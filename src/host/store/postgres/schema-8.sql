-- Version 8: saves that come together share a transaction.

-- Stores rows, one after the other: one with `given` as `save_new` does, any other as `save_over`. Returns the place of each row that
-- was stored, from 0, and its new revision. Null: the server is in another era than that save.
create function askd.save_all(saves jsonb) returns table (place bigint, stored bigint)
language plpgsql as $$
declare
    save record;
begin
    perform askd.hold_folder(folder.of_group, folder.held)
        from (select distinct of_group, held from jsonb_to_recordset(saves) as save (of_group text, held uuid)) as folder;
    place := -1;
    for save in select * from jsonb_to_recordset(saves) as save (
        which uuid, of_group text, made_by uuid, what jsonb, given bigint, code text, replaces uuid, in_era uuid, retired boolean,
        effects text[], folders text[], times bigint[], lines text[]
    ) loop
        place := place + 1;
        if save.given is null then
            select * into stored from askd.save_over(save.which, save.of_group, save.made_by, save.what, null, save.replaces, save.in_era,
                save.retired, save.effects, save.folders, save.times, save.lines);
        else
            select * into stored from askd.save_new(save.which, save.of_group, save.made_by, save.what, null, save.given, save.code,
                save.effects, save.folders, save.times, save.lines);
        end if;
        if found then
            return next;
        end if;
    end loop;
end
$$;
