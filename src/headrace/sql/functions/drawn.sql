-- The number of headrace.ids that was drawn last; 0: none.
create or replace function headrace.drawn() returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select case when s.is_called then s.last_value else s.last_value - 1 end from headrace.ids s
$$;
