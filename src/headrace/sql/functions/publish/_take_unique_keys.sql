-- Takes the unique keys of the events of a batch: an event gets its key if none holds it that is
-- unfinished. Else it gets the id of that event and is not stored; its idempotency key, if it has
-- one, is that event's then. In a batch the first event with a key gets it. An event that no queue
-- takes cannot hold a key.
--     ids, repeated, created_at   as _take_idempotency_keys returned them, and so returned; events
--                                 that are repeated already are left alone
-- Concurrency: keys are taken in their order, so that two batches do not wait for each other. Whoever
-- changes the holder of a key locks its row and then looks, so the row is always of the one event of
-- the key that may be unfinished. An end locks nothing here: an event that is ending is unfinished
-- until that is committed. Above READ COMMITTED it is what the transaction's snapshot shows.
create or replace function headrace._take_unique_keys(
    space headrace.namespaces, heads headrace.head[], which int[], inout ids bigint[], inout repeated int[],
    inout created_at timestamptz, t timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    one record;
    holder headrace.unique_keys;
    fresh bigint[] := '{}';     -- events of this batch that hold a key
begin
    for one in
        select u.place, h.unique_key as key, h.idempotency_key, h.queues <> '{}' as is_delivered
        from unnest(which) with ordinality as u(head, place) join unnest(heads) h on h.n = u.head
        where h.unique_key is not null and (repeated is null or u.place <> all (repeated))
        order by h.unique_key, u.place
    loop
        holder := headrace._lock_unique_key(space.id, one.key, case when one.is_delivered then ids[one.place] end, t);
        if holder.event = ids[one.place] then
            fresh := fresh || holder.event;
            continue;
        elsif holder.event = any (fresh) or headrace._is_unfinished(space.id, holder.event, holder.created_at) then
            update headrace.idempotency i set event = holder.event, created_at = holder.created_at
            where i.namespace = space.id and i.key = one.idempotency_key and i.event = ids[one.place];
            ids[one.place] := holder.event;
            repeated := repeated || one.place::int;
            if one.place = 1 then
                created_at := holder.created_at;
            end if;
        elsif one.is_delivered then
            update headrace.unique_keys u set event = ids[one.place], created_at = t, look_at = t + interval '1 hour'
            where u.namespace = space.id and u.key = one.key;
            fresh := fresh || ids[one.place];
        end if;
    end loop;
end $$;
