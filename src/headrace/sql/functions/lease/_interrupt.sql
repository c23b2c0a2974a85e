-- Notes that deliveries were taken out of a claim, so that the claim's next heartbeat tells its
-- worker: see extend. If a node has claimed them (instance is not null), it is notified to send that
-- heartbeat now. action: CANCELLED, RESET or ERASED. Called in the transaction that takes the
-- deliveries; the ordinary end of an attempt never comes here, and never notifies.
create or replace function headrace._interrupt(
    queue int, lease bigint, instance uuid, events bigint[], action text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if events <> '{}' then
        insert into headrace.interruptions (lease, event, queue, action, at)
        select _interrupt.lease, e, _interrupt.queue, _interrupt.action, headrace._now() from unnest(events) e
        -- A delivery leaves a claim once. But where the sequence is behind its tables, as after a partial
        -- restore, a claim may have the number of an earlier one: see repair_ids.
        on conflict on constraint interruptions_pkey do update
        set queue = excluded.queue, action = excluded.action, at = excluded.at;
        perform headrace._notify_holder(_interrupt.instance, _interrupt.lease);
    end if;
end $$;
