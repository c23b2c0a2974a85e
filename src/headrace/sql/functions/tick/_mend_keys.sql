-- The safety net of ordering keys: repairs keys that are blocked though none of their deliveries is
-- in progress. In a sound database it finds nothing; it exists for changes made to the tables by
-- hand.
--     a key that is active for an event that is neither held nor delayed, or for the end of a move
--       that has ended (see slots): becomes inactive
--     a key that waits while it is not active and has no token: gets a token
-- Reads the 1,000 longest waiting deliveries of each queue: a blocked delivery becomes one of them.
-- Returns the number of repaired keys.
-- Concurrency: each look is one statement, so that it sees a consistent state of a key that
-- changes; skips locked rows.
create or replace function headrace._mend_keys() returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    q headrace.queues;
    stuck headrace.keyed[];
    mended int := 0;
begin
    for q in select o.* from headrace.queues o where exists (select from headrace.keyed k where k.queue = o.id) loop
        with orphan as materialized (
            select a.ctid from headrace.active a
            where a.queue = q.id
              and not exists (select from headrace.held h where h.queue = q.id and h.event = a.event)
              and not exists (select from headrace.delayed d where d.queue = q.id and d.event = a.event)
              and (a.event > 0 or not exists (select from headrace.slots s where s.slot = headrace._slot(q.space, a.key)
                                                                             and s.origin is not null))
            limit 1000
            for update skip locked
        )
        delete from headrace.active a where a.ctid = any (array(select o.ctid from orphan o));

        with oldest as materialized (
            select k.* from headrace.keyed k where k.queue = q.id order by k.event limit 1000
        ),
        head as (
            select distinct on (o.key) o.* from oldest o
            where not exists (select from headrace.active a where a.queue = q.id and a.key = o.key)
            order by o.key, o.event
        )
        select array_agg(h::headrace.keyed) into stuck from head h
        where not exists (select from headrace.ready r where r.queue = q.id and r.key = h.key)
          and not exists (select from headrace.limit_keys l where l.queue = q.id and l.key = h.key);
        if stuck is not null then
            perform headrace._add_key_token(q.id, k.suspect, k.priority, k.route, k.key) from unnest(stuck) k;
            perform headrace._wake(q.id);
            mended := mended + cardinality(stuck);
        end if;
    end loop;
    return mended;
end $$;
