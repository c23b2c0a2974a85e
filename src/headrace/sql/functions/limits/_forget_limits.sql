-- Removes groups that stand for nothing: no slot of theirs is taken, and their rate is full again
-- or gone; and the rows of slots that stand for nothing. `most` of each at most; returns whether
-- there may be more. A claim makes a group anew, and what it makes is the same.
-- Concurrency: skips groups that claims have locked, so it removes none that is in use.
create or replace function headrace._forget_limits(most int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t constant timestamptz := headrace._now();
    slots int;
    groups int;
begin
    delete from headrace.limit_slots s
    where s.ctid = any (array(
        select o.ctid from headrace.limit_slots o
        where not exists (select from headrace.leases c where c.id = o.lease and o.attempts is null)
          and (o.attempts is null or not exists (
              select from unnest(o.events, o.attempts) as m(event, attempt)
              join headrace.held h on h.queue = o.queue and h.event = m.event and h.attempt = m.attempt))
        limit most for update skip locked));
    get diagnostics slots = row_count;
    delete from headrace.limit_groups g
    where g.ctid = any (array(select o.ctid from headrace.limit_groups o where o.ctid = any (array(
        select f.ctid from headrace.limit_groups f
        left join headrace.queues q on q.id = f.queue
        left join lateral (
            select l.* from jsonb_to_recordset(q.limits) as l(scope text, rate int, per numeric, burst int)
            where l.scope = f.scope and l.rate is not null
        ) l on true
        where not exists (select from headrace.limit_slots s
                          where s.queue = f.queue and s.scope = f.scope and s.name = f.name)
        group by f.ctid
        having coalesce(bool_and(l.rate is null or f.at is null or headrace._refilled(
            f.level, f.unit, f.at, l.rate, (l.per * 1000000)::bigint, coalesce(l.burst, 0), t)
            >= (coalesce(l.burst, 0) + 1) * (l.per * 1000000)), true)
        limit most)) for update skip locked));
    get diagnostics groups = row_count;
    return slots = most or groups = most;
end $$;
