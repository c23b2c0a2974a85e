-- The scheduled tasks of a namespace, by name, each with the instants at which it will fire, as far
-- as they are computed. A paused task shows the instants at which it would fire. Raises QU010.
create or replace function headrace.schedules(namespace text) returns setof headrace.listed_task
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    t timestamptz := headrace._now();
    home int := (select n.id from headrace.namespaces n where n.name = schedules.namespace);
begin
    perform headrace._check_access(schedules.namespace);
    if home is null then
        perform headrace._raise_no_such_queue(schedules.namespace, 'main');
    end if;
    return query
    select l.* from headrace.scheduled_tasks s cross join lateral headrace._task_row(s, t) l
    where s.namespace = home
    order by s.name;
end $$;
