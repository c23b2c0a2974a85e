-- Takes deliveries of one priority, as `_next_in_strict_order` found them, out of `ready` and
-- `keyed`; returns those that could be taken, in their order. A pack that loses members is opened:
-- the claim puts the rest back, in packs of the size of a claim.
-- Concurrency: skips locked rows.
create or replace function headrace._take_strict(
    q headrace.queues, ahead headrace.ready[], size int
) returns headrace.ready[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_nestloop = on
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    one headrace.ready;
    turns headrace.keyed[] := '{}';
    gone headrace.ready[];
    taken headrace.ready[];
begin
    with place as (
        select distinct a.suspect, a.priority, a.route, a.seq from unnest(ahead) a where a.key is null
    ),
    mine as materialized (
        select f.ctid from place p
        cross join lateral (
            select r.ctid from headrace.ready r
            where r.queue = q.id and r.suspect = p.suspect and r.priority = p.priority and r.route = p.route
              and r.seq = p.seq
            limit 1
            for update skip locked
        ) f
    ),
    deleted as (
        delete from headrace.ready r where r.ctid = any (array(select m.ctid from mine m)) returning r.*
    )
    select coalesce(array_agg(d::headrace.ready), '{}') into gone from deleted d;

    insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
    select part[1], g.created_at, g.route, part[1], g.queue, g.priority, case when cardinality(part) > 1 then part end
    from unnest(gone) g
    cross join lateral (
        select array(select m from unnest(g.pack) m where m <> all (array(select a.event from unnest(ahead) a))
                     order by m) as rest) l
    cross join lateral generate_series(1, cardinality(l.rest), size) i
    cross join lateral (select l.rest[i:i + size - 1] as part) p
    where g.pack is not null;
    if found then
        perform headrace._wake(q.id);
    end if;

    foreach one in array ahead loop
        continue when one.key is null;
        turns := turns
            || (headrace._claim_keys(q, row(one.suspect, one.priority, one.route, 0, null, null)::headrace.hint,
                                     array[one.key])).turns;
    end loop;
    taken := array(
        select t from (
            select a as t, a.event from unnest(ahead) a
            join unnest(gone) g on g.suspect = a.suspect and g.route = a.route and g.seq = a.seq
            where a.key is null
            union all
            select headrace._ready_delivery(k.event, k.created_at, k.route, seq => k.event, queue => k.queue,
                                            priority => k.priority, attempts => k.attempts, failures => k.failures,
                                            crashes => k.crashes, suspect => k.suspect, key => k.key), k.event
            from unnest(turns) k
        ) u order by u.event);
    return taken;
end $$;
