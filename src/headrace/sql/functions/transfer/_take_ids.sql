-- Takes the numbers up to the last one of a file for its events, which keep theirs, if this database
-- never held an event and is the same shard as the one that the file comes from; returns whether it
-- did. Numbers from before a database was a shard are none of another's: a file with such ones, by
-- its mark, gets new numbers. Other sessions that draw a number wait until this transaction has
-- ended; if it fails, no number was taken.
create or replace function headrace._take_ids(header jsonb) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    own headrace.shard;
begin
    select * into own from headrace.shard;
    if (select s.is_called from headrace.ids s)
       or coalesce(header -> 'shard', '{"stride": 1, "number": 0, "mark": 0}')
          <> jsonb_build_object('stride', own.stride, 'number', own.number, 'mark', 0) then
        return false;
    end if;
    alter sequence headrace.ids no cycle;   -- changes nothing, and blocks every other draw: see repair_ids
    if (select s.is_called from headrace.ids s) or headrace.ids_behind() is not null then
        return false;
    end if;
    perform headrace._lay_ids(own, (header ->> 'last_id')::bigint);
    perform nextval('headrace.ids');   -- the next import finds that numbers were drawn
    return true;
end $$;
