-- Takes deliveries out of the places in which they wait, ready, keyed or delayed, on their way to
-- another place; ignores those that are not there. A pack that loses a member goes on without it.
-- Concurrency: waits for a claim that is taking one of them now, and then does not find it: the
-- delivery is moving. Callers look in the other places and come back.
create or replace function headrace._take_waiting(q headrace.queues, events bigint[]) returns headrace.taken[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    i record;
    stored record;
    d headrace.delayed;
    k headrace.keyed;
    r headrace.ready;
    taken headrace.taken[] := '{}';
    since constant timestamptz := headrace._earliest_time_of(_take_waiting.events);
begin
    for i in
        select u.event, u.item from unnest(_take_waiting.events) with ordinality as u(event, item) order by u.event
    loop
        delete from headrace.delayed w where w.event = i.event and w.queue = q.id returning w.* into d;
        if found then
            taken := taken || headrace._taken_delivery(
                d.event, d.attempts, d.created_at, d.failures, d.crashes, d.suspect, d.key, item => i.item::int);
            continue;
        end if;
        delete from headrace.keyed w where w.event = i.event and w.queue = q.id returning w.* into k;
        if found then
            taken := taken || headrace._taken_delivery(
                k.event, k.attempts, k.created_at, k.failures, k.crashes, k.suspect, k.key, item => i.item::int);
            continue;
        end if;
        delete from headrace.ready w where w.event = i.event and w.queue = q.id and w.seq <> w.event and w.key is null
        returning w.* into r;
        if not found then
            select e.route, e.priority into stored from (
                select b.id, b.route, b.priority from headrace.events b
                where (since = '-infinity' or b.created_at >= since)
                union all
                select c.id, c.route, c.priority from headrace.events_carried c
            ) e where e.id = i.event limit 1;
            delete from headrace.ready w
            where w.queue = q.id and not w.suspect and w.priority = stored.priority and w.route = stored.route
              and w.seq between headrace._first_of_pack(i.event) and i.event and w.key is null
              and (w.event = i.event or i.event = any (w.pack))
            returning w.* into r;
            continue when not found;
            insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
            select rest[1], r.created_at, r.route, rest[1], r.queue, r.priority, rest
            from (select array_remove(r.pack, i.event) as rest) p where cardinality(rest) > 0;
        end if;
        taken := taken || headrace._taken_delivery(
            i.event, r.attempts, r.created_at, r.failures, r.crashes, r.suspect, item => i.item::int);
    end loop;
    return taken;
end $$;
