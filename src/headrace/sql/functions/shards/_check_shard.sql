-- Refuses a database whose sequence or functions are not those of the shard that it is: its numbers
-- would be taken for another shard's. Somebody has altered the sequence, or restored a part of a
-- dump. A sequence that is merely behind is another matter: see ids_behind.
-- Raises QU042.
create or replace function headrace._check_shard() returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    problem constant text := headrace._shard_problem();
begin
    if problem is not null then
        raise exception using errcode = 'QU042', message = problem;
    end if;
end $$;
