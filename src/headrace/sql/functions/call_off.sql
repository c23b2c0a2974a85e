-- Sees to it that an event is delivered to nobody any more, in no queue of its namespace: cancels what is unfinished and removes
-- dead letters, until one look sees neither. Raises QU023.
create or replace function headrace.call_off(home int, event_id bigint, t timestamptz, actor text, reason text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    stands record;
    found_some boolean;
    since constant timestamptz := headrace.happened_since(array[call_off.event_id]);
    taken headrace.taken[];
begin
    for round in 1..5 loop
        found_some := false;
        for stands in
            select q as queue, d.attempts, case when d.lease is not null then 'PROCESSING' else 'PENDING' end as status
            from headrace.queues q
            cross join lateral (
                select e.route, e.priority from headrace.events e where e.id = call_off.event_id and (since = '-infinity' or e.created_at >= since)
                union all
                select c.route, c.priority from headrace.events_carried c where c.id = call_off.event_id
                limit 1
            ) e
            cross join lateral headrace.delivery(call_off.event_id, q.id, e.route, e.priority) d
            where q.namespace = call_off.home
            union all
            select q, x.attempts, 'dead'
            from headrace.dead_letters x join headrace.queues q on q.id = x.queue
            where x.event = call_off.event_id and q.namespace = call_off.home
        loop
            found_some := true;
            if stands.status = 'dead' then
                delete from headrace.dead_letters x where x.event = call_off.event_id and x.queue = (stands.queue).id;
                continue;
            end if;
            taken := headrace.take(stands.queue, call_off.event_id, stands.status, stands.attempts);
            if taken <> '{}' then
                t := headrace.now();
                perform headrace.note(stands.queue, t, 'CANCELLED', taken, call_off.actor, call_off.reason);
                perform headrace.pass_on(stands.queue, t, taken);
            end if;
        end loop;
        if not found_some then
            return;
        end if;
    end loop;
    perform headrace.on_the_move(call_off.event_id);
end $$;
