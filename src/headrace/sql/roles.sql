-- Who may do what. A role gets EXECUTE on its functions and nothing on tables; PUBLIC gets nothing at all. Roles
-- belong to the whole server: where this user may not create them, they are left out, with a notice.
do $$
declare
    role text;
    grants constant jsonb := '{
        "headrace_publisher": ["publish", "publish_one", "publish_many", "max_payload", "version", "has_capacity", "ids_behind"],
        "headrace_worker": ["publish", "publish_one", "publish_many", "max_payload", "version", "poll", "poll_batch", "finish", "complete", "complete_lease", "complete_held", "fail", "release", "finalize", "finalized", "extend", "save_progress", "progress",
                            "report", "start", "heartbeat",
                            "resolve", "tick", "has_capacity", "register_node", "touch_node_heartbeat", "unregister_node",
                            "fall_asleep", "wake_up", "schedule_task", "tasks_to_plan", "plan_task",
                            "save_state", "checkpoint", "stay", "recover", "ids_behind", "queue"],
        "headrace_reader": ["version", "ids_behind", "max_payload", "event", "event_log", "progress", "stats", "queue", "queues",
                            "events", "count_events", "deliveries", "log_since", "dead_letters", "dead_letter", "dead_letter_groups", "workers",
                            "nodes", "unhandled_types", "schedules", "admin_log", "totals", "backlog", "count_nodes", "latencies", "log_end", "log_now",
                            "history", "attention", "attention_in", "locks_in_the_way", "log_waits", "longest_waits", "ticking", "lineage", "find_events",
                            "state", "low_water", "checkpoints", "recoveries", "replay"],
        "headrace_admin": ["events", "count_events", "deliveries", "log_since", "dead_letters", "dead_letter", "dead_letter_groups", "workers",
                           "publish", "publish_one", "publish_many", "max_payload", "version", "poll", "poll_batch", "finish", "complete", "complete_lease", "complete_held", "fail", "release", "finalize", "finalized", "extend", "save_progress", "progress",
                           "report", "start", "heartbeat",
                           "resolve", "tick", "event", "event_log", "stats", "create_namespace", "configure",
                           "queue_name_for_namespace",
                           "cancel", "reset", "redrive", "purge", "erase", "namespaces", "change_namespace", "delete_namespace",
                           "has_capacity", "queue", "queues", "create_queue", "change_queue", "delete_queue", "pause", "resume", "drain",
                           "register_node", "touch_node_heartbeat", "unregister_node", "nodes", "unhandled_types", "fall_asleep", "wake_up",
                           "schedule_task", "tasks_to_plan", "plan_task", "schedules", "pause_schedule", "resume_schedule", "run_schedule", "remove_schedule", "run_scheduled_task",
                           "bind_role", "unbind_role", "bound_roles", "create_token", "tokens", "live_tokens", "revoke_token", "admin_log", "totals", "backlog", "count_nodes", "latencies", "log_end", "log_now",
                            "history", "attention", "attention_in", "locks_in_the_way", "log_waits", "longest_waits", "ticking", "lineage", "find_events",
                           "state", "low_water", "save_state", "checkpoint", "checkpoints", "recoveries", "replay", "stay", "recover", "ids_behind", "repair_ids",
                           "export_queue", "export_events", "fence", "import_state"]
    }';
    routine regprocedure;
begin
    revoke all on schema headrace from public;
    revoke all on all tables in schema headrace from public;
    for routine in select p.oid from pg_proc p where p.pronamespace = 'headrace'::regnamespace loop
        execute format('revoke all on routine %s from public', routine);
    end loop;

    for role in select jsonb_object_keys(grants) loop
        if not exists (select from pg_roles where rolname = role) then
            begin
                execute format('create role %I nologin', role);
            exception
                when insufficient_privilege then
                    raise notice 'headrace: may not create the role %, leaving it out', role;
                    continue;
                when duplicate_object or unique_violation then
                    null;  -- somebody else has just made it
            end;
        end if;
        -- What an earlier release gave, and this one does not, is taken back.
        execute format('revoke all on all routines in schema headrace from %I', role);
        execute format('revoke all on all tables in schema headrace from %I', role);
        execute format('grant usage on schema headrace to %I', role);
        for routine in
            select p.oid from pg_proc p
            where p.pronamespace = 'headrace'::regnamespace and p.proname in (select jsonb_array_elements_text(grants -> role))
        loop
            execute format('grant execute on routine %s to %I', routine, role);
        end loop;
    end loop;
    if exists (select from pg_roles where rolname = 'headrace_reader') then
        grant select on headrace.event_queue, headrace.event_log, headrace.event_queue_state, headrace.queue_checkpoints, headrace.bound_roles to headrace_reader;
    end if;
    if exists (select from pg_roles where rolname = 'headrace_admin') then
        grant select on headrace.event_queue, headrace.event_log, headrace.event_queue_state, headrace.queue_checkpoints, headrace.bound_roles to headrace_admin;
    end if;
end $$;
