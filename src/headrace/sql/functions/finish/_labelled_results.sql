-- The `others` of a finish, in which each failure without a status of its own has the one of its
-- claim: COMPLETED_WITH_ERRORS, if the claim collects (see poll). Called before anything is taken:
-- the lease of a batch goes with its last delivery. A late failure finds no lease any more, and
-- must name its status itself. A snooze too many is a failure: see _limited_snoozes.
create or replace function headrace._labelled_results(
    q headrace.queues, events bigint[], attempts int[], leases bigint[], others jsonb
) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    if q.max_snoozes is not null then
        others := headrace._limited_snoozes(q, _labelled_results.events, _labelled_results.attempts, others);
    end if;
    if not _labelled_results.others @? 'lax $.* ? ((@.action == "fail" || @.action == "abandon") && !exists (@.status))'
        then
        return _labelled_results.others;
    end if;
    return (
        select _labelled_results.others
            || coalesce(jsonb_object_agg(o.item, o.other || '{"status": "COMPLETED_WITH_ERRORS"}'), '{}')
        from (
            select i.key as item, i.value as other, _labelled_results.events[i.key::int] as event,
                   _labelled_results.attempts[i.key::int] as attempt,
                   _labelled_results.leases[i.key::int] as lease
            from jsonb_each(_labelled_results.others) i
            where i.value ->> 'action' in ('fail', 'abandon') and not i.value ? 'status'
        ) o
        cross join lateral (
            select coalesce(
                (select h.lease from headrace.held h where h.queue = q.id and h.event = o.event
                     and h.attempt = o.attempt), o.lease) as lease
        ) c
        where case
            when c.lease is not null then (select l.collects from headrace.leases l where l.id = c.lease
                                               and l.queue = q.id)
            else exists (
                select from headrace.leases l
                where l.queue = q.id and l.collects and o.event = any (l.events)
                  and coalesce(l.attempts[array_position(l.events, o.event)], 1) = o.attempt)
        end
    );
end $$;
