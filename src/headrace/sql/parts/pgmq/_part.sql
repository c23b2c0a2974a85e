-- Splits a claim that was made in this transaction into lenient leases, one for each delivery that
-- it holds.
create or replace function pgmq._part(q headrace.queues, claim bigint, until timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    its headrace.leases;
    parts headrace.held[];
begin
    delete from headrace.leases l where l.id = claim returning l.* into its;
    with gone as (delete from headrace.held h where h.lease = claim returning h.*)
    select array_agg(g order by g.position) into parts from gone g;
    with part as materialized (
        select nextval('headrace.ids') as id, p.* from unnest(parts) p
    ),
    leased as (
        insert into headrace.leases (id, until, picked_at, namespace, queue, size, worker, lenient)
        select p.id, _part.until, its.picked_at, q.namespace, q.id, 1, 'pgmq', true from part p
    )
    insert into headrace.held (event, created_at, route, lease, queue, attempt, position, priority, failures, crashes,
                               suspect, key)
    select p.event, p.created_at, p.route, p.id, p.queue, p.attempt, 0, p.priority, p.failures, p.crashes,
           p.suspect, p.key
    from part p;
end $$;
