-- Dead-letters the members of a fresh claim whose event is stored nowhere (an operator deleted it
-- by hand), each alone: its neighbours were claimed and returned.
create or replace function headrace._dead_letter_missing_events(claim bigint) returns void
language plpgsql
set enable_nestloop = on
as $$
#variable_conflict use_column
declare
    q headrace.queues;
    lost headrace.taken[];
begin
    select o.* into q from headrace.queues o join headrace.leases l on l.queue = o.id where l.id = claim;
    with gone as (
        select d.event, d.attempts from headrace.deliveries d
        where d.lease = claim and not exists (select from headrace._stored_event(d.event, d.created_at))
    )
    select headrace._take_batched(q, array_agg(g.event), array_agg(g.attempts), array_agg(claim))
        || headrace._take_held(q, array_agg(g.event), array_agg(g.attempts))
    into lost from gone g;
    perform headrace._settle(q, headrace._now(), 'fail', lost, null, null, null);
end $$;
