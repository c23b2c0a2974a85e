-- Lets the next of each ordering key have its turn: these deliveries are no longer in work. Leaves a token for each of
-- their keys, whether there is a next or not: see keyed.
create or replace function headrace.pass_on(q headrace.queues, t timestamptz, taken headrace.taken[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if not exists (select from unnest(taken) k where k.key is not null) then
        return;
    end if;
    delete from headrace.active a using unnest(taken) k
    where a.queue = q.id and a.key = k.key and a.event = k.event;
    insert into headrace.ready (event, created_at, route, seq, queue, priority, key)
    select 0, k.created_at, b.route, nextval('headrace.ids'), q.id, b.priority, k.key
    from unnest(taken) k cross join lateral headrace.body(k.event, k.created_at) b
    where k.key is not null;
end $$;
