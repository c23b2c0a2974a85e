-- The heartbeat: makes leases last for `by` from now, or, if that is null, for as long as each was claimed for. Answers for each lease, in any order:
--     held   it lasts until lease_expires_at       lost   there is no such claim any more
--     busy   somebody has it locked for a moment: not lost, ask again
-- A lease that has run out but was not yet taken away is held on to.
-- Concurrency: never waits. Raises QU001, QU010, QU011.
create or replace function headrace.extend(namespace text, queue text, leases bigint[], by interval default null)
returns table (lease bigint, state text, lease_expires_at timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now();
    q headrace.queues;
    named bigint;
    ending timestamptz;
    kept bigint[] := '{}';
    ends timestamptz[] := '{}';
begin
    perform headrace.admit(extend.namespace);
    if by <= interval '0' or by > interval '7 days' then
        raise exception using errcode = 'QU001', message = 'a lease is longer than nothing and at most 7 days long';
    end if;
    select * into q from headrace.queues where queues.space = extend.namespace and queues.name = extend.queue;
    if not found then
        perform headrace.no_such_queue(extend.namespace, extend.queue);
    end if;
    for named in select distinct l.id from unnest(extend.leases) as l(id) order by 1 loop
        perform from headrace.leases l where l.id = named and l.queue = q.id and not l.reaped for update skip locked;
        if found then
            update headrace.leases l
            set until = t + coalesce(by, l.lasts, l.until - l.picked_at), lasts = coalesce(l.lasts, l.until - l.picked_at), extended_at = t
            where l.id = named returning l.until into ending;
            kept := kept || named;
            ends := ends || ending;
        end if;
    end loop;
    return query
    select i.id,
           case when i.id = any (kept) then 'held'
                when exists (select from headrace.leases l where l.id = i.id and l.queue = q.id and not l.reaped) then 'busy'
                else 'lost' end,
           ends[array_position(kept, i.id)]
    from (select distinct unnest(extend.leases) as id) i;
end $$;
