-- The number that was last drawn from headrace.ids; 0: none.
create or replace function headrace._last_drawn_id() returns bigint
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select case when s.is_called then s.last_value else s.last_value - 1 end from headrace.ids s
$$;
