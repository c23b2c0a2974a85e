-- Takes about `most` waiting deliveries of a queue, out of `ready` (with those in line for their
-- key's turn) or `delayed`: those of these routes (null: all) whose events were there at a time.
-- Packs go whole.
-- Concurrency: skips locked rows.
create or replace function headrace._take_many(
    q headrace.queues, what text, routes bigint[], until timestamptz, most int
) returns headrace.taken[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    -- rows that are dated later were there, too: the clock was ahead
    ahead constant timestamptz := headrace._now() + interval '1 minute';
    taken headrace.taken[];
    in_line headrace.taken[];
begin
    if what = 'delayed' then
        with picked as materialized (
            select d.ctid from headrace.delayed d
            where d.queue = q.id and (d.created_at <= until or d.created_at > ahead)
              and (routes is null or d.route = any (routes))
            limit most for update skip locked
        ),
        gone as (delete from headrace.delayed d where d.ctid = any (array(select ctid from picked)) returning d.*)
        select array_agg(
            headrace._taken_delivery(g.event, g.attempts, g.created_at, g.failures, g.crashes, g.suspect, g.key))
        into taken from gone g;
        return coalesce(taken, '{}');
    end if;

    with picked as materialized (
        select r.ctid, coalesce(cardinality(r.pack), 1) as size from headrace.ready r
        where r.queue = q.id and r.key is null and (r.created_at <= until or r.created_at > ahead)
          and (routes is null or r.route = any (routes))
        limit most for update skip locked
    ),
    enough as (
        select s.ctid from (select p.ctid, sum(p.size) over (rows unbounded preceding) - p.size as before
                            from picked p) s
        where s.before < most
    ),
    gone as (delete from headrace.ready r where r.ctid = any (array(select ctid from enough)) returning r.*)
    select array_agg(
        headrace._taken_delivery(m.event, g.attempts, g.created_at, g.failures, g.crashes, g.suspect))
    into taken from gone g cross join lateral unnest(coalesce(g.pack, array[g.event])) as m(event);
    taken := coalesce(taken, '{}');

    with picked as materialized (
        select k.ctid from headrace.keyed k
        where k.queue = q.id and (k.created_at <= until or k.created_at > ahead)
          and (routes is null or k.route = any (routes))
        limit greatest(most - cardinality(taken), 0) for update skip locked
    ),
    gone as (delete from headrace.keyed k where k.ctid = any (array(select ctid from picked)) returning k.*)
    select array_agg(
        headrace._taken_delivery(g.event, g.attempts, g.created_at, g.failures, g.crashes, g.suspect, g.key))
    into in_line from gone g;
    return taken || coalesce(in_line, '{}');
end $$;
