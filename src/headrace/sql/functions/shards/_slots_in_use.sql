-- The deliveries with an ordering key of these slots that are here: waiting for their turn, held by
-- workers, delayed (also for a retry), dead. Reads every delivery that has a key.
create or replace function headrace._slots_in_use(
    slots int[], out waiting bigint, out held bigint, out delayed bigint, out dead bigint
)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select count(*) filter (where p.place = 'keyed'), count(*) filter (where p.place = 'held'),
           count(*) filter (where p.place = 'delayed'), count(*) filter (where p.place = 'dead')
    from (
        select 'keyed' as place, k.queue, k.key from headrace.keyed k
        union all
        select 'held', h.queue, h.key from headrace.held h where h.key is not null
        union all
        select 'delayed', d.queue, d.key from headrace.delayed d where d.key is not null
        union all
        select 'dead', d.queue, d.key from headrace.dead_letters d where d.key is not null
    ) p join headrace.queues q on q.id = p.queue
    where headrace._slot(q.space, p.key) = any (_slots_in_use.slots)
$$;
