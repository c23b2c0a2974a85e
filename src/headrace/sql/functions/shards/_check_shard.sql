-- Refuses a database whose sequence or functions are not those of the shard that it is: its numbers
-- would be taken for another shard's. The sequence was altered, or a part of a dump restored. A
-- sequence that is merely behind is another matter: see ids_behind.
-- Raises QU042, with the command as hint.
create or replace function headrace._check_shard() returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    found_one record;
begin
    select * into found_one from headrace._shard_problem();
    if found_one.problem is not null then
        raise exception using errcode = 'QU042', hint = found_one.mend,
            message = format('%s: `%s` corrects it', found_one.problem, found_one.mend);
    end if;
end $$;
