-- Stores the last number drawn, once a day: see _earliest_time_of. Returns false: no work is left.
create or replace function headrace._store_id_mark(t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into headrace.marks (id, at)
    select s.last_value - (not s.is_called)::int, t from headrace.ids s
    where coalesce((select m.at not between t - interval '1 day' and t from headrace.marks m order by m.id desc
                    limit 1), true)
    on conflict do nothing;
    return false;
end $$;
