-- Version 11: a save says so if its daemon knows of no host that serves the folder of its group.

-- Raises AK002 unless this run is the one of the host that serves that folder, and keeps it so until the transaction ends. The id of
-- zeros is nobody's: then no host may serve it.
create or replace function askd.hold_folder(what text, by_run uuid) returns void strict language plpgsql as $$
begin
    if by_run = '00000000-0000-0000-0000-000000000000' then
        if not exists (select from askd.pins where group_name = what) then
            return;
        end if;
    else
        perform from askd.pins as pins join askd.nodes as nodes on nodes.node = pins.node
            where pins.group_name = what and nodes.run = by_run for key share;
        if found then
            return;
        end if;
    end if;
    raise exception 'another host serves this folder' using errcode = 'AK002';
end
$$;
