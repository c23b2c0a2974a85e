-- Gives each delivery of a claim, whose deliveries are held, to a worker of its own: the first one
-- stays in the claim's lease, the others get leases of theirs. The workers are those after the
-- first `served`.
create or replace function headrace._share_claim(
    q headrace.queues, lot headrace.lot, workers text[], served int
) returns headrace.share[]
language plpgsql
as $$
#variable_conflict use_column
declare
    shares headrace.share[];
begin
    with share as materialized (
        select (served + u.n)::int as place, u.event,
               case when u.n = 1 then lot.lease else nextval('headrace.ids') end as lease,
               case when u.n = 1 then lot.lease_token else gen_random_uuid() end as token
        from unnest(lot.events) with ordinality as u(event, n)
    ),
    made as (
        insert into headrace.leases (id, until, picked_at, namespace, queue, size, worker, token)
        select s.lease, lot.until, lot.picked_at, q.namespace, q.id, 1, workers[s.place], s.token
        from share s where s.lease <> lot.lease
    ),
    moved as (
        update headrace.held h set lease = s.lease, token = s.token, position = 0
        from share s where s.lease <> lot.lease and h.queue = q.id and h.event = s.event
    )
    select array_agg(s::headrace.share order by s.place) into shares from share s;
    if cardinality(shares) > 1 then
        update headrace.leases set size = 1 where id = lot.lease;
    end if;
    return shares;
end $$;
