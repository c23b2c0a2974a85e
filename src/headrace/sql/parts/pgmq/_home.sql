-- Makes the namespace of pgmq's queues, unless it exists. Each of its events goes to the queue that
-- has the name of its type, and to no other.
create or replace function pgmq._home() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if headrace.create_namespace('pgmq', '{"made_by": "pgmq"}') then
        perform headrace.change_queue('pgmq', 'main', '{"takes": false}');
    end if;
end $$;
select pgmq._home();
