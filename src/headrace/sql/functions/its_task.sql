-- A scheduled task by its name, locked: nobody fires or changes it before this transaction ends. Raises QU010, QU013.
create or replace function headrace.its_task(namespace text, name text) returns headrace.scheduled_tasks
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    home int := (select n.id from headrace.namespaces n where n.name = its_task.namespace and (not n.bound or headrace.admits(n.name)));
    task headrace.scheduled_tasks;
begin
    if home is null then
        perform headrace.no_such_queue(its_task.namespace, 'main');
    end if;
    select * into task from headrace.scheduled_tasks s where s.namespace = home and s.name = its_task.name for update;
    if not found then
        raise exception using errcode = 'QU013',
            message = format('there is no schedule %L in the namespace %L', its_task.name, its_task.namespace);
    end if;
    return task;
end $$;
