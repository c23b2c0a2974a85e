-- The `others` of a finish, in which each failure that does not say its status itself has the one of its claim: COMPLETED_WITH_ERRORS, if
-- that collects (see poll). Asked before anything is taken: the lease of a batch goes with its last delivery.
-- A failure that comes late finds no lease any more, and has to say it itself.
create or replace function headrace.labelled(q headrace.queues, events bigint[], attempts int[], leases bigint[], others jsonb) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    if not labelled.others @? 'lax $.* ? ((@.action == "fail" || @.action == "abandon") && !exists (@.status))' then
        return labelled.others;
    end if;
    return (
        select labelled.others || coalesce(jsonb_object_agg(o.item, o.other || '{"status": "COMPLETED_WITH_ERRORS"}'), '{}')
        from (
            select i.key as item, i.value as other, labelled.events[i.key::int] as event, labelled.attempts[i.key::int] as attempt,
                   labelled.leases[i.key::int] as lease
            from jsonb_each(labelled.others) i
            where i.value ->> 'action' in ('fail', 'abandon') and not i.value ? 'status'
        ) o
        cross join lateral (
            select coalesce(
                (select h.lease from headrace.held h where h.queue = q.id and h.event = o.event and h.attempt = o.attempt), o.lease) as lease
        ) c
        where case
            when c.lease is not null then (select l.collects from headrace.leases l where l.id = c.lease and l.queue = q.id)
            else exists (
                select from headrace.leases l
                where l.queue = q.id and l.collects and o.event = any (l.events)
                  and coalesce(l.attempts[array_position(l.events, o.event)], 1) = o.attempt)
        end
    );
end $$;
