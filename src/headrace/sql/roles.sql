-- The rights of the roles. A role gets EXECUTE on its functions and no right on tables; PUBLIC gets
-- nothing at all. Roles belong to the whole server: where this user may not create them, migrate
-- leaves them out, with a notice.
do $$
declare
    -- A line for each function that does not begin with _: its name, and the roles that may call
    -- it.
    grants constant text := '
        bind_role: admin
        bound_roles: admin
        unbind_role: admin
        admin_log: reader admin
        cancel: admin
        configure: admin
        erase: admin
        ids_behind: publisher worker reader admin
        purge: admin
        repair_ids: admin
        reset: admin
        rerun: admin
        has_capacity: publisher worker admin
        poll: worker admin
        poll_batch: worker admin
        poll_for: worker admin
        version: publisher worker reader admin
        dead_letter: reader admin
        dead_letter_groups: reader admin
        dead_letters: reader admin
        redrive: admin
        count_events: reader admin
        deliveries: reader admin
        event: reader admin
        events: reader admin
        find_events: reader admin
        lineage: reader admin
        workers: reader admin
        complete: worker admin
        complete_held: worker admin
        complete_lease: worker admin
        fail: worker admin
        finalize: worker admin
        finalized: worker admin
        finish: worker admin
        release: worker admin
        report: worker admin
        extend: worker admin
        hear_interruptions: worker admin
        heartbeat: worker admin
        progress: worker reader admin
        resolve: worker admin
        save_progress: worker admin
        start: worker admin
        locks_in_the_way: reader admin
        event_log: reader admin
        log_end: reader admin
        log_now: reader admin
        log_since: reader admin
        log_waits: reader admin
        change_namespace: admin
        create_namespace: admin
        delete_namespace: admin
        namespaces: admin
        queue_name_for_namespace: admin
        count_nodes: reader admin
        nodes: reader admin
        recover: worker admin
        recoveries: reader admin
        register_node: worker admin
        stay: worker admin
        touch_node_heartbeat: worker admin
        unhandled_types: reader admin
        unregister_node: worker admin
        max_payload: publisher worker reader admin
        publish: publisher worker admin
        publish_many: publisher worker admin
        publish_one: publisher worker admin
        limits: reader admin
        change_queue: admin
        create_queue: admin
        delete_queue: admin
        drain: admin
        pause: admin
        queue: worker reader admin
        queues: reader admin
        resume: admin
        pause_schedule: admin
        plan_task: worker admin
        remove_schedule: admin
        resume_schedule: admin
        run_schedule: admin
        run_scheduled_task: admin
        schedule_task: worker admin
        schedules: reader admin
        tasks_to_plan: worker admin
        checkpoint: worker admin
        checkpoints: reader admin
        low_water: reader admin
        replay: reader admin
        save_state: worker admin
        state: reader admin
        attention: reader admin
        attention_in: reader admin
        backlog: reader admin
        history: reader admin
        latencies: reader admin
        longest_waits: reader admin
        stats: reader admin
        totals: reader admin
        tick: worker admin
        ticking: reader admin
        place: reader admin
        accept_slots: admin
        give_slots: admin
        open_slots: admin
        published_before: publisher worker admin
        shard_of: publisher worker reader admin
        slots: publisher worker reader admin
        slots_left: admin
        shard: publisher worker reader admin
        create_token: admin
        live_tokens: admin
        revoke_token: admin
        tokens: admin
        export_events: admin
        export_queue: admin
        fence: admin
        import_state: admin
        why: reader admin
        fall_asleep: worker admin
        wake_up: worker admin
    ';
    role text;
    routine regprocedure;
begin
    revoke all on schema headrace from public;
    revoke all on all tables in schema headrace from public;
    for routine in select p.oid from pg_proc p where p.pronamespace = 'headrace'::regnamespace loop
        execute format('revoke all on routine %s from public', routine);
    end loop;

    foreach role in array '{headrace_publisher,headrace_worker,headrace_reader,headrace_admin}'::text[] loop
        if not exists (select from pg_roles where rolname = role) then
            begin
                execute format('create role %I nologin', role);
            exception
                when insufficient_privilege then
                    raise notice 'headrace: may not create the role %, leaving it out', role;
                    continue;
                when duplicate_object or unique_violation then
                    null;  -- another session has just made it
            end;
        end if;
        -- Revoke first: an earlier release may have granted rights that this one does not.
        execute format('revoke all on all routines in schema headrace from %I', role);
        execute format('revoke all on all tables in schema headrace from %I', role);
        execute format('grant usage on schema headrace to %I', role);
        for routine in
            select p.oid from regexp_matches(grants, E'(\\w+): ([ \\w]+)', 'g') line
            join pg_proc p on p.pronamespace = 'headrace'::regnamespace and p.proname = line[1]
            where substr(role, length('headrace_') + 1) = any (string_to_array(line[2], ' '))
        loop
            execute format('grant execute on routine %s to %I', routine, role);
        end loop;
    end loop;
    if exists (select from pg_roles where rolname = 'headrace_reader') then
        grant select on headrace.event_queue, headrace.event_log, headrace.event_queue_state,
            headrace.queue_checkpoints, headrace.bound_roles to headrace_reader;
    end if;
    if exists (select from pg_roles where rolname = 'headrace_admin') then
        grant select on headrace.event_queue, headrace.event_log, headrace.event_queue_state,
            headrace.queue_checkpoints, headrace.bound_roles to headrace_admin;
    end if;
end $$;
