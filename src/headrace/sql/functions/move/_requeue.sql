-- Puts deliveries that were just taken out of their places back into the queue: ready at the tail,
-- or, where due_at[item] is later, delayed until then. Attempts and counters are those of `taken`.
-- Deliveries of an ordering key join the others of their key.
-- Raises 40001 when an event is stored nowhere that this transaction can see.
create or replace function headrace._requeue(
    q headrace.queues, t timestamptz, taken headrace.taken[], due_at timestamptz[] default null
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    stored int;
    now_ready int;
begin
    with item as materialized (
        select k.*, b.route, b.priority, coalesce(_requeue.due_at[k.item], t) as due_at
        from unnest(taken) k cross join lateral headrace._stored_event(k.event, k.created_at) b
    ),
    later as (
        insert into headrace.delayed (event, created_at, due_at, route, queue, attempts, priority, failures, crashes,
                                      suspect, key)
        select i.event, i.created_at, i.due_at, i.route, q.id, i.attempt, i.priority, i.failures, i.crashes,
               i.suspect, i.key
        from item i where i.due_at > t
    ),
    again as (
        insert into headrace.ready (event, created_at, route, seq, queue, attempts, priority, failures, crashes,
                                    suspect, ready_at)
        select i.event, i.created_at, i.route, nextval('headrace.ids'), q.id, i.attempt, i.priority, i.failures,
               i.crashes, i.suspect, t
        from (select * from item where due_at <= t and key is null order by item) i
    ),
    in_line as (
        insert into headrace.keyed (queue, key, event, created_at, route, attempts, priority, failures,
                                    crashes, suspect)
        select q.id, i.key, i.event, i.created_at, i.route, i.attempt, i.priority, i.failures, i.crashes, i.suspect
        from item i where i.due_at <= t and i.key is not null
    )
    select count(*), count(*) filter (where i.due_at <= t) into stored, now_ready from item i;
    if stored < cardinality(taken) then
        raise exception using errcode = '40001', message = 'the event has been moved since this transaction began';
    end if;
    perform headrace._release_keys(q, t, taken);
    if now_ready > 0 then
        perform headrace._wake(q.id);
    end if;
end $$;
