-- The tasks of a namespace whose stored instants will soon be used up: fewer than 10 are to come,
-- or fewer than 100, all within the hour; where plans reach far, see _is_planned_far, fewer than
-- 500, all within half a year. A client with a calendar computes the instants after planned_until,
-- and passes them to plan_task. Raises QU010.
create or replace function headrace.tasks_to_plan(namespace text) returns setof headrace.listed_task
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    t timestamptz := headrace._now();
    home int := (select n.id from headrace.namespaces n where n.name = tasks_to_plan.namespace);
begin
    perform headrace._check_access(tasks_to_plan.namespace);
    if home is null then
        perform headrace._raise_no_such_queue(tasks_to_plan.namespace, 'main');
    end if;
    return query
    select l.* from headrace.scheduled_tasks s cross join lateral headrace._task_row(s, t) l
    cross join lateral (select count(*) from unnest(s.next_fires) f where f > t and f <= l.planned_until) as coming(n)
    where s.namespace = home and s.active
      and (coming.n < 10 or coming.n < 100 and l.planned_until < t + interval '1 hour'
           or l.far and coming.n < 500 and l.planned_until < t + interval '6 months')
    order by l.planned_until;
end $$;
