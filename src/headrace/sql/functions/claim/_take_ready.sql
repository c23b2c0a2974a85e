-- Takes up to `rows` rows of a pair of priority and route out of `ready`, from `low` on, until they
-- have `wanted` deliveries. Returns the deliveries, column by column, as _claim_route takes one
-- row. A token counts as `weight` deliveries.
--     locked   the number of rows that were looked at; first: the lowest number of the taken rows
--     keys     the keys of the tokens among them, each once; tokens: the number of those tokens
--     newest   the latest time at which one of them became ready
-- Concurrency: skips locked rows.
create or replace function headrace._take_ready(
    q headrace.queues, pair headrace.hint, low bigint, rows int, wanted int, weight int,
    out locked int, out first bigint, out events bigint[], out created timestamptz[], out seqs bigint[],
    out attempts int[], out failures smallint[], out keys text[], out tokens int, out newest timestamptz
)
language plpgsql
as $$
#variable_conflict use_column
begin
    with picked as materialized (
        select r.ctid, case when r.key is null then coalesce(cardinality(r.pack), 1) else weight end as size
        from headrace.ready r
        where r.queue = q.id and not r.suspect and r.priority = pair.priority and r.route = pair.route
          and r.seq >= low
        order by r.seq limit rows
        for update skip locked
    ),
    chosen as (
        select p.ctid, sum(p.size) over (rows unbounded preceding) - p.size as before from picked p
    ),
    gone as (
        delete from headrace.ready r
        where r.ctid = any (array(select c.ctid from chosen c where c.before < wanted))
        returning r.event, r.created_at, r.seq, r.attempts, r.failures, r.pack, r.key, r.ready_at
    ),
    member as (
        select g.event, g.created_at, g.seq as place, g.seq, g.attempts + 1 as attempt, g.failures from gone g
        where g.pack is null and g.key is null
        union all
        select m.event, g.created_at, g.seq, m.event, 1, 0::smallint from gone g
        cross join lateral unnest(g.pack) as m(event) where g.pack is not null
    )
    select (select count(*)::int from picked) as locked, (select min(g.seq) from gone g) as first,
           array_agg(event) as events, array_agg(created_at) as created,
           array_agg(seq) as seqs, array_agg(attempt) as attempts, array_agg(failures) as failures,
           (select array_agg(k.key order by k.seq)
            from (select g.key, min(g.seq) as seq from gone g where g.key is not null
                  group by g.key) k) as keys,
           (select count(*)::int from gone g where g.key is not null) as tokens,
           (select max(coalesce(g.ready_at, g.created_at)) from gone g) as newest
    into locked, first, events, created, seqs, attempts, failures, keys, tokens, newest
    from (select * from member order by place, event) m;
end $$;
