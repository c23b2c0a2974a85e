-- Takes the numbers up to this one for events that keep theirs, if this database never held an
-- event and draws each number in turn; returns whether it did. Other sessions that draw a number
-- wait until this transaction has ended; if it fails, no number was taken.
create or replace function headrace._take_ids(last bigint) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if (select s.is_called from headrace.ids s) then
        return false;
    end if;
    alter sequence headrace.ids no cycle;   -- changes nothing, and blocks every other draw: see repair_ids
    if (select s.is_called from headrace.ids s) or headrace.ids_behind() is not null
       or (select s.seqincrement <> 1 or s.seqstart <> 1 from pg_sequence s where s.seqrelid = 'headrace.ids'::regclass)
           then
        return false;
    end if;
    execute format('alter sequence headrace.ids restart with %s', last + 1);
    perform nextval('headrace.ids');   -- the next import finds that numbers were drawn
    return true;
end $$;
