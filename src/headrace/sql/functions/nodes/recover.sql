-- Takes over the claims of dead earlier starts of a node: abandons them now, as if their leases had
-- run out, so that workers can claim the unfinished deliveries again at once. _settle decides as
-- always which deliveries are charged. Returns the number of deliveries that this call took over,
-- and
--     done     nothing (more) is left to take over
--     more     something is left: call again
--     busy     another session has some of it locked for a moment: call again later
--     alive    another process has this id and is alive; it keeps its claims. Call again from time
--              to time. (Or an outsider holds its lock, see _advisory_lock: its leases run out)
-- A start is dead if it took its lock since this server was started and no longer holds it: see
-- stay. For a start that never held the lock, or held it before the server restarted, this cannot
-- be known: its leases run out. `instance`: the caller's own start. recoveries lists the takeovers.
-- Concurrency: skips locked rows; each claim is taken over once. Raises QU010.
create or replace function headrace.recover(
    namespace text, node_id text, instance uuid, out recovered int, out state text
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    -- deliveries per call, or as many as a quarter of a second allows: the caller has leases to
    -- renew
    most constant int := 2000;
    stop_at constant timestamptz := clock_timestamp() + interval '0.25 seconds';
    t constant timestamptz := headrace._now();
    home constant int := (select n.id from headrace.namespaces n where n.name = recover.namespace);
    dead headrace.instances;
    claim headrace.leases;
    done record;
    is_enough boolean := false;
    taken jsonb;                -- deliveries, by queue
    h constant headrace.horizon := headrace._horizon(false, false);   -- before any other look
begin
    perform headrace._check_access(recover.namespace);
    if home is null then
        perform headrace._raise_no_such_queue(recover.namespace, 'main');
    end if;
    recovered := 0;
    state := 'done';
    for dead in
        select i.* from headrace.instances i
        where i.namespace = home and i.node_id = headrace._node_name(recover.node_id) and i.instance <> recover.instance
        for update skip locked
    loop
        if dead.locked_under is distinct from pg_postmaster_start_time() then
            delete from headrace.instances i
            where i.instance = dead.instance and not exists (select from headrace.leases l
                                                             where l.instance = dead.instance);
            continue;
        elsif not pg_try_advisory_xact_lock(headrace._instance_lock(dead.instance)) then
            state := case state when 'done' then 'alive' else state end;
            continue;
        end if;
        taken := '{}';
        for claim in select l.* from headrace.leases l where l.instance = dead.instance
        order by l.id for update skip locked loop
            exit when is_enough;
            select * into done from headrace._end_lease(claim, t);
            recovered := recovered + done.deliveries;
            if done.deliveries > 0 then
                taken := taken || jsonb_build_object(claim.queue,
                                                     coalesce((taken -> claim.queue::text)::int, 0) + done.deliveries);
            end if;
            is_enough := recovered >= most or clock_timestamp() > stop_at;
        end loop;
        insert into headrace.recoveries as r (namespace, queue, node_id, instance, checkpoint_id, events_recovered,
                                              recovery_start_time)
        select home, q.id, dead.node_id, dead.instance, (headrace._measure_low_water(q, h, 10000)).checkpoint,
               n.value::bigint, t
        from jsonb_each_text(taken) n join headrace.queues q on q.id = n.key::int
        on conflict on constraint recoveries_instance_queue_key do update
            set events_recovered = r.events_recovered + excluded.events_recovered;
        if not exists (select from headrace.leases l where l.instance = dead.instance) then
            -- recoveries reports the duration
            update headrace.recoveries r set recovery_complete_time = headrace._now()
            where r.instance = dead.instance;
            delete from headrace.instances i where i.instance = dead.instance;
        elsif is_enough then
            state := 'more';
        else
            state := case state when 'more' then state else 'busy' end;
        end if;
    end loop;
    -- Starts that were skipped because another session had them locked.
    if state = 'done' and exists (
        select from headrace.instances i
        where i.namespace = home and i.node_id = headrace._node_name(recover.node_id) and i.instance <> recover.instance
          and i.locked_under = pg_postmaster_start_time())
    then
        state := 'busy';
    end if;
end $$;
