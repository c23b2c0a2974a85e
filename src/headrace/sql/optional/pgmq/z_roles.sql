-- Who may call what: the roles are those of the schema headrace, and PUBLIC may call nothing.
do $$
declare
    role text;
    grants constant jsonb := '{
        "headrace_publisher": ["send", "send_batch"],
        "headrace_worker": ["send", "send_batch", "read", "read_with_poll", "pop", "delete", "archive", "set_vt"],
        "headrace_reader": ["list_queues", "metrics", "metrics_all"],
        "headrace_admin": ["send", "send_batch", "read", "read_with_poll", "pop", "delete", "archive", "set_vt", "list_queues", "metrics", "metrics_all",
                           "create", "create_queue", "create_non_partitioned", "create_unlogged", "create_partitioned", "drop_queue", "purge_queue",
                           "validate_queue_name"]
    }';
    routine regprocedure;
begin
    for routine in select p.oid from pg_proc p where p.pronamespace = 'pgmq'::regnamespace loop
        execute format('revoke all on routine %s from public', routine);
    end loop;
    for role in select r.rolname from pg_roles r where grants ? r.rolname loop
        execute format('grant usage on schema pgmq to %I', role);
        execute format('revoke all on all routines in schema pgmq from %I', role);
        for routine in
            select p.oid from pg_proc p
            where p.pronamespace = 'pgmq'::regnamespace and p.proname in (select jsonb_array_elements_text(grants -> role))
        loop
            execute format('grant execute on routine %s to %I', routine, role);
        end loop;
    end loop;
end $$;
