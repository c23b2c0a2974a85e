-- Locks groups with limits for a claim, until its transaction ends, and tells the room in each, by
-- their numbers. A group that another claim has locked has none for this one: is_busy. It makes the
-- rows of groups that are new.
--     at        the latest refill of a rate: what starts now is not dated before it
--     look_at   see _limit_rooms; the earliest
-- Also removes the rows of slots whose deliveries have all left their claim (of a batch, when it is
-- over).
-- Concurrency: skips locked rows; waits a millisecond at most for a claim that makes the same row.
create or replace function headrace._lock_limit_groups(
    q headrace.queues, members headrace.membership[], t timestamptz,
    out rooms int[], out is_busy boolean, out look_at timestamptz, out at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_nestloop = on
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    size constant int := (select max(m.n) from unnest(members) m);
    locked int[];
begin
    is_busy := false;
    if size is null then
        return;
    end if;
    locked := array(
        select g.n from (select distinct on (m.n) m.* from unnest(members) m order by m.n) g
        cross join lateral (
            select true from headrace.limit_groups f
            where f.queue = q.id and f.scope = g.scope and f.name = g.name for update skip locked
        ) f);
    if cardinality(locked) < size then
        locked := locked || headrace._make_limit_groups(q, members, locked);
        is_busy := cardinality(locked) < size;
    end if;
    delete from headrace.limit_slots s
    where s.ctid = any (array(
        select v.ctid from (select distinct m.scope, m.name from unnest(members) m) g
        cross join lateral (
            select s.ctid from headrace.limit_slots s
            where s.queue = q.id and s.scope = g.scope and s.name = g.name
              and not exists (select from headrace.leases c where c.id = s.lease and s.attempts is null)
              and (s.attempts is null or not exists (
                  select from unnest(s.events, s.attempts) as m(event, attempt)
                  join headrace.held h on h.queue = s.queue and h.event = m.event and h.attempt = m.attempt))
            for update skip locked
        ) v));
    -- a statement of its own, that sees what the claims before have committed
    select array_agg(case when not is_busy or r.n = any (locked) then r.room else 0 end order by r.n),
           min(r.look_at) filter (where not is_busy or r.n = any (locked)), max(r.at)
    into rooms, look_at, at from headrace._limit_rooms(q, members, t) r;
end $$;
