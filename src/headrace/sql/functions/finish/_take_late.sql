-- Takes deliveries whose lease expired, for a late complete or fail: the delivery still waits, and
-- the last entry of its log is ABANDONED with the named attempt. So no worker has had it since, and
-- no session has touched it. The late finish reverts the abandonment: a suspect that was charged a
-- crash loses it, and a delivery that was no suspect before is none any more. The log keeps both
-- entries.
-- `taken`: items to skip. workers, tokens, others: as in report. A named worker and a named token
-- must be those of the claim; a queue that requires tokens accepts nothing that its log cannot
-- prove. The rows have no lease, because the abandonment has ended it: the log must not report that
-- claim twice.
-- Concurrency: decides under the lock on the waiting delivery, which every session takes that moves
-- it. Locks them in the order of their ids, after leases and held rows; claims and tick skip locked
-- rows, so they never wait for this.
-- Raises QU001 for a late finish without a token, where the queue requires one.
create or replace function headrace._take_late(
    q headrace.queues, t timestamptz, taken headrace.taken[], events bigint[], attempts int[], workers text[],
    tokens text[], others jsonb
) returns headrace.taken[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    known constant int[] := array(select k.item from unnest(taken) k);
    named record;
    last record;
    one headrace.taken;
    late headrace.taken[] := '{}';
begin
    for named in
        select i.item::int as item, i.event, i.attempt, workers[i.item] as worker,
               case cardinality(tokens) when 1 then tokens[1] else tokens[i.item] end as token, a.action
        from unnest(events, attempts) with ordinality as i(event, attempt, item)
        cross join lateral (select coalesce(others -> i.item::text ->> 'action', 'complete') as action) a
        where i.attempt is not null and i.item <> all (known) and a.action in ('complete', 'fail')
        order by i.event, i.item
    loop
        one := headrace._lock_waiting(q, named.event, named.attempt);
        continue when one.event is null;
        select * into last from headrace._last_log_entry(q, named.event);
        continue when last.action is distinct from 'ABANDONED' or last.attempt <> named.attempt
            or last.worker <> named.worker;
        if q.require_lease_token and named.token is null then
            perform headrace._raise_problem(headrace._lease_token_missing(q), named.item);
        end if;
        continue when (named.token is null or named.token = last.token) is not true;
        if one.key is not null and named.action = 'fail' then
            -- While the delivery waits for its retry, the others of its key wait for it. If one of
            -- them is in progress, it is too late for that.
            insert into headrace.active (queue, key, event) values (q.id, one.key, one.event) on conflict do nothing;
            continue when not found;
        end if;
        perform headrace._take_waiting(q, array[one.event]);
        one.item := named.item;
        one.suspect := one.crashes > 0;     -- only suspects are charged: see _settle
        one.crashes := greatest(one.crashes - 1, 0);
        one.picked_at := last.picked_at;
        one.worker := last.worker;
        late := late || one;
    end loop;
    if late <> '{}' then    -- the abandonment counted the attempt, and its end will count it again
        insert into headrace.counts (at, namespace, queue, attempts) values (t, q.namespace, q.id, -cardinality(late));
    end if;
    return late;
end $$;
