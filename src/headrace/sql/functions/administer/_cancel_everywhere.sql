-- Ends every delivery of an event, in all queues of its namespace: cancels unfinished deliveries
-- and removes dead letters, until one look finds neither. Raises QU023.
create or replace function headrace._cancel_everywhere(
    home int, event_id bigint, t timestamptz, actor text, reason text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    stands record;
    found_some boolean;
    since constant timestamptz := headrace._earliest_time_of(array[_cancel_everywhere.event_id]);
    taken headrace.taken[];
begin
    for round in 1..5 loop
        found_some := false;
        for stands in
            select q as queue, d.attempts, case when d.lease is not null then 'PROCESSING' else 'PENDING' end as status
            from headrace.queues q
            cross join lateral (
                select e.route, e.priority from headrace.events e where e.id = _cancel_everywhere.event_id
                    and (since = '-infinity' or e.created_at >= since)
                union all
                select c.route, c.priority from headrace.events_carried c where c.id = _cancel_everywhere.event_id
                limit 1
            ) e
            cross join lateral headrace._unfinished_delivery(_cancel_everywhere.event_id, q.id, e.route, e.priority) d
            where q.namespace = _cancel_everywhere.home
            union all
            select q, x.attempts, 'dead'
            from headrace.dead_letters x join headrace.queues q on q.id = x.queue
            where x.event = _cancel_everywhere.event_id and q.namespace = _cancel_everywhere.home
        loop
            found_some := true;
            if stands.status = 'dead' then
                delete from headrace.dead_letters x where x.event = _cancel_everywhere.event_id
                    and x.queue = (stands.queue).id;
                continue;
            end if;
            taken := headrace._take_one(stands.queue, _cancel_everywhere.event_id, stands.status, stands.attempts,
                                        'ERASED');
            if taken <> '{}' then
                t := headrace._now();
                perform headrace._log_moves(stands.queue, t, 'CANCELLED', taken, _cancel_everywhere.actor,
                                            _cancel_everywhere.reason);
                perform headrace._release_keys(stands.queue, t, taken);
            end if;
        end loop;
        if not found_some then
            return;
        end if;
    end loop;
    perform headrace._raise_busy(_cancel_everywhere.event_id);
end $$;
