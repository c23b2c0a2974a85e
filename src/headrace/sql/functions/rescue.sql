-- The members of a fresh claim whose event is not in its month's partition any more: returned like poll does when
-- retention has carried it over, dead-lettered, each alone, when somebody has deleted it by hand.
create or replace function headrace.rescue(claim bigint, until timestamptz, pairs headrace.hint[]) returns setof headrace.claimed
language plpgsql
set enable_nestloop = on
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now();
    q headrace.queues;
    lost headrace.taken[];
begin
    select o.* into q from headrace.queues o join headrace.leases l on l.queue = o.id where l.id = claim;
    return query
    select d.event, d.attempts, c.type, c.tags, c.payload, c.details, c.priority, d.failures, d.crashes,
           coalesce(c.max_retries, q.max_retries), d.created_at, claim, h.event is not null, rescue.until,
           case when d.position = 0 then pairs::text end
    from headrace.deliveries d
    join headrace.events_carried c on c.id = d.event
    left join headrace.held h on h.event = d.event and h.queue = d.queue
    where d.lease = claim
      and not exists (select from headrace.events e where e.id = d.event and e.created_at = d.created_at)
    order by d.position;

    with gone as (
        select d.event, d.attempts from headrace.deliveries d
        where d.lease = claim and not exists (select from headrace.body(d.event, d.created_at))
    )
    select headrace.take_batched(q, array_agg(g.event), array_agg(g.attempts), array_agg(claim))
        || headrace.take_held(q, array_agg(g.event), array_agg(g.attempts))
    into lost from gone g having count(*) > 0;
    if lost is not null then
        perform headrace.settle(q, t, 'fail', lost, null, null, null);
    end if;
end $$;
