-- The latencies and run times of the attempts that ended with the outcomes after one and up to
-- another: at most `most` of the newest, evenly out of the newest rows of outcomes. kind: wait or
-- run, see latencies. until: only attempts that had ended by then.
create or replace function headrace._sampled_latencies(after bigint, reached bigint, until timestamptz, most int)
returns table (queue int, kind text, seconds float8)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_sort = off
as $$
#variable_conflict use_column
begin
    return query
    with newest as materialized (
        select o.queue, o.picked_at, o.at, o.action, o.events, o.attempts, o.ms, cardinality(o.events) as size
        from headrace.outcomes o
        where o.id > _sampled_latencies.after and o.id <= reached and o.at between until - interval '1 hour' and until
          and o.picked_at is not null
        order by o.id desc limit most
    ),
    member as materialized (
        select n.queue, n.picked_at, n.action, n.attempts[m.n] as attempt, n.events[m.n] as event,
               coalesce(n.ms[m.n] / 1000.0::float8, extract(epoch from n.at - n.picked_at)::float8) as ran
        from newest n
        cross join (select greatest(1, most / greatest(count(*), 1)) as each from newest) s
        cross join lateral (
            select distinct 1 + g * n.size / least(s.each, n.size) as n
            from generate_series(0, least(s.each, n.size) - 1) g
        ) m
    )
    select m.queue, 'run', greatest(m.ran, 0) from member m
    where m.action in ('COMPLETED', 'COMPLETED_WITH_ERRORS', 'FAILED')
    union all
    select m.queue, 'wait', greatest(extract(epoch from m.picked_at - e.created_at)::float8, 0)
    from member m
    cross join lateral (select e.created_at from headrace.events e where e.id = m.event limit 1) e
    where m.attempt = 1;
end $$;
