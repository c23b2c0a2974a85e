-- The tasks of a namespace whose stored instants will soon be used up: fewer than 10 are left, or fewer than 100 that are over
-- within the hour. Somebody who knows calendars works out what follows planned_until, and gives it to plan_task. Raises QU010.
create or replace function headrace.tasks_to_plan(namespace text) returns setof headrace.listed_task
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    t timestamptz := headrace.now();
    home int := (select n.id from headrace.namespaces n where n.name = tasks_to_plan.namespace);
begin
    if home is null then
        perform headrace.no_such_queue(tasks_to_plan.namespace, 'main');
    end if;
    return query
    select l.* from headrace.scheduled_tasks s cross join lateral headrace.listed_task(s, t) l
    where s.namespace = home and s.active
      and (cardinality(s.next_fires) < 10 or cardinality(s.next_fires) < 100 and s.planned_until < t + interval '1 hour')
    order by s.planned_until;
end $$;
