-- The heartbeat: makes leases last for `by` from now, or, if that is null, for as long as each was
-- claimed for. Returns a state for each lease, in any order:
--     held   it lasts until lease_expires_at       lost   there is no such claim any more
--     busy   another session has it locked for a moment: not lost, try again
-- taken: the deliveries of this lease that cancel, reset, erase or fence took out of it, with the
-- action ({"17": "CANCELLED"}); null: none. Their attempts are lost, whatever the state of the lease:
-- the worker should stop working on them. The same ones are told again each time.
-- lease_tokens: those that poll returned, along leases; null where not known. A lease with a wrong
-- token is lost. A lease that has expired but was not yet ended is extended.
-- Concurrency: never waits. Raises QU001 (also for a lease without a token, where the queue
-- requires one), QU010, QU011.
create or replace function headrace.extend(
    namespace text, queue text, leases bigint[], by interval default null, lease_tokens text[] default null
) returns table (lease bigint, state text, lease_expires_at timestamptz, taken jsonb)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    q headrace.queues;
    named record;
    ending timestamptz;
    kept bigint[] := '{}';
    ends timestamptz[] := '{}';
begin
    perform headrace._check_access(extend.namespace);
    if by < interval '0.1 seconds' or by > interval '7 days' then
        raise exception using errcode = 'QU001',
            message = 'a lease lasts from 0.1 seconds to 7 days: a worker could not renew a shorter one in time';
    end if;
    select * into q from headrace.queues where queues.space = extend.namespace and queues.name = extend.queue;
    if not found then
        perform headrace._raise_no_such_queue(extend.namespace, extend.queue);
    end if;
    if q.require_lease_token and exists (
        select from unnest(extend.leases, lease_tokens) as i(id, token) join headrace.leases l on l.id = i.id
            and l.queue = q.id
        where i.token is null)
    then
        perform headrace._raise_problem(headrace._lease_token_missing(q), 0);
    end if;
    for named in select distinct l.id, l.token from unnest(extend.leases, lease_tokens) as l(id, token)
    where l.id is not null order by 1 loop
        perform from headrace.leases l
        where l.id = named.id and l.queue = q.id and not l.reaped
          and (named.token is null or l.token::text = named.token)
        for update skip locked;
        if found then
            update headrace.leases l
            set until = t + coalesce(by, l.lasts, l.until - l.picked_at),
                lasts = coalesce(l.lasts, l.until - l.picked_at), extended_at = t
            where l.id = named.id returning l.until into ending;
            kept := kept || named.id;
            ends := ends || ending;
        end if;
    end loop;
    return query
    select i.id,
           case when i.id = any (kept) then 'held'
                when exists (select from headrace.leases l where l.id = i.id and l.queue = q.id and not l.reaped
                               and coalesce(l.token::text = any (i.tokens), true)) then 'busy'
                else 'lost' end,
           ends[array_position(kept, i.id)],
           (select jsonb_object_agg(o.event, o.action) from headrace.interruptions o
            where o.lease = i.id and o.queue = q.id)
    from (select l.id, array_agg(l.token) filter (where l.token is not null) as tokens
          from unnest(extend.leases, lease_tokens) as l(id, token) group by l.id) i;
end $$;
