-- Whether the deliveries of a row of slots have all left the claim that took them.
create or replace function headrace._slot_is_void(slot headrace.limit_slots) returns boolean
language sql stable
as $$
    select case when slot.attempts is not null
        then not exists (
            select from unnest(slot.events, slot.attempts) as m(event, attempt)
            join headrace.held h on h.queue = slot.queue and h.event = m.event and h.attempt = m.attempt)
        else not exists (
            select from headrace.leases c cross join unnest(slot.positions) p
            where c.id = slot.lease and (c.done is null or get_bit(c.done, p) = 0))
        end
$$;
