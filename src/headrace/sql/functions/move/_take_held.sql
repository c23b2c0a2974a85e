-- Takes held deliveries: deletes their rows, if they are still held under the named attempt, and
-- with the named token, if there is one. Touches nothing else, so it waits for no heartbeat and no
-- sibling; it does wait for a racing end of the same delivery.
create or replace function headrace._take_held(
    q headrace.queues, events bigint[], attempts int[], tokens text[] default null
) returns headrace.taken[]
language plpgsql
as $$
#variable_conflict use_column
declare
    item int;
    h headrace.held;
    claim headrace.leases;
    taken headrace.taken[] := '{}';
begin
    for item in select n from unnest(events) with ordinality as i(event, n) order by event loop
        delete from headrace.held
        where held.event = events[item] and held.queue = q.id and held.attempt = attempts[item]
          and (tokens[item] is null or held.token::text = tokens[item])
        returning held.* into h;
        continue when not found;
        if claim.id is distinct from h.lease then
            select id, picked_at, worker into claim.id, claim.picked_at, claim.worker
            from headrace.leases where leases.id = h.lease;
        end if;
        taken := taken || headrace._taken_delivery(
            h.event, h.attempt, h.created_at, h.failures, h.crashes, h.suspect, h.key, item => item,
            lease => h.lease, "position" => h.position, picked_at => claim.picked_at, worker => claim.worker);
    end loop;
    return taken;
end $$;
