-- Makes events of one route claimable in these queues, in packs where they are many; counts them,
-- and wakes the workers that sleep on those queues.
create or replace function headrace._enqueue_packed(
    ids bigint[], space int, route bigint, priority smallint, queues int[], t timestamptz
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    queue int;
begin
    foreach queue in array queues loop
        insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
        select m.event, t, route, m.event, queue, priority, case when p.is_pack then p.ids end
        from (select b as ids, cardinality(b) >= 16 as is_pack from headrace._packs_of(ids) b) p
        cross join lateral unnest(case when p.is_pack then p.ids[:1] else p.ids end) as m(event);
        insert into headrace.counts (at, namespace, queue, published) values (t, space, queue, cardinality(ids));
        perform headrace._wake(queue);
    end loop;
end $$;
