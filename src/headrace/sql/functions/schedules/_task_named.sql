-- A scheduled task by its name, locked: no other session fires or changes it before this
-- transaction ends.
-- Raises QU010, QU013.
create or replace function headrace._task_named(namespace text, name text) returns headrace.scheduled_tasks
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    home int := (select n.id from headrace.namespaces n where n.name = _task_named.namespace
                     and (not n.bound or headrace._has_access(n.name)));
    task headrace.scheduled_tasks;
begin
    if home is null then
        perform headrace._raise_no_such_queue(_task_named.namespace, 'main');
    end if;
    select * into task from headrace.scheduled_tasks s where s.namespace = home
        and s.name = _task_named.name for update;
    if not found then
        raise exception using errcode = 'QU013',
            message = format('there is no schedule %L in the namespace %L', _task_named.name, _task_named.namespace);
    end if;
    return task;
end $$;
