-- The reason why a queue cannot be moved as it is; null: it can.
create or replace function headrace._move_problem(q headrace.queues) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case when q.state <> 'paused' then format(
        'QU055 the queue %L is %s: it must be paused before it is moved', q.space || '/' || q.name, q.state) end
$$;
