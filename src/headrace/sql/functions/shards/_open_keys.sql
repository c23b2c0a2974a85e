-- Lets the keys of slots be handed out that were held back: see open_slots.
create or replace function headrace._open_keys(slots int[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    turns headrace.keyed[];
begin
    delete from headrace.active a using headrace.queues q
    where a.event = 0 and q.id = a.queue and headrace._slot(q.space, a.key) = any (_open_keys.slots);
    select array_agg(k::headrace.keyed) into turns
    from (select distinct on (w.queue, w.key) w.* from headrace.keyed w join headrace.queues q on q.id = w.queue
          where headrace._slot(q.space, w.key) = any (_open_keys.slots)
          order by w.queue, w.key, w.event) k;
    perform headrace._add_key_token(k.queue, k.suspect, k.priority, k.route, k.key) from unnest(turns) k;
    perform headrace._wake(q) from (select distinct k.queue from unnest(turns) k) w(q);
end $$;
