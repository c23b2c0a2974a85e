-- The part of every tick for namespaces that dead-letter unhandled events: stores the types that
-- wait unhandled, and dead-letters the deliveries of types that have been unhandled for the
-- namespace's unhandled_after, 1,000 or so a call. A dead-lettered delivery is at least that old,
-- too. Where a look takes long, because there are very many queues and types, ticks look less
-- often, so that looking takes at most a twentieth of the time; but at least once a minute.
-- Returns whether there is more to do at once. Deliveries of a paused queue wait on purpose. A
-- failure raises a warning and is retried.
-- Concurrency: one call at a time; a second call leaves the work to the first. Never waits.
create or replace function headrace._tick_unhandled(t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    most constant int := 1000;
    place record;
    q headrace.queues;
    late record;
    buried int := 0;
    failed interval;
    living uuid[];
    began constant timestamptz := clock_timestamp();
    pause interval;
begin
    if not exists (select from headrace.namespaces n where n.unhandled = 'dead_letter')
       and not exists (select from headrace.unhandled)
       or exists (select from headrace.upkeep u where u.task = 'unhandled' and u.next_at > t)
       or not headrace._try_lock('unhandled') then
        return false;
    end if;
    delete from headrace.unhandled u where u.seen_at < t - interval '3 minutes';
    living := headrace._alive_nodes(t);
    for place in
        select o as queue, t - least(n.unhandled_after, interval '100 years') as until
        from headrace.namespaces n join headrace.queues o on o.namespace = n.id
        where n.unhandled = 'dead_letter' and o.space is not null and o.state <> 'paused'
    loop
        begin
            q := place.queue;
            with seen as materialized (select * from headrace._unhandled_in_queue(q, living)),
            handled as (
                delete from headrace.unhandled u where u.queue = q.id and u.type not in (select n.type from seen n)
            )
            insert into headrace.unhandled (queue, type, since, seen_at)
            select q.id, n.type, t, t from seen n order by n.type
            on conflict on constraint unhandled_pkey do update set seen_at = excluded.seen_at
            -- a gap of three minutes ends a series of looks
            where unhandled.seen_at < excluded.seen_at - interval '30 seconds';
            for late in
                select n.type, n.routes from headrace._unhandled_in_queue(q, living) n
                join headrace.unhandled u on u.queue = q.id and u.type = n.type and u.since <= place.until
            loop
                exit when buried >= most;
                buried := buried + headrace._dead_letter_unhandled(q, t, late.type, late.routes, place.until,
                                                                   most - buried);
            end loop;
        exception when others then
            failed := headrace._retry_upkeep_in('dead-lettering unhandled events', sqlstate, sqlerrm);
        end;
    end loop;
    pause := coalesce(failed, least(20 * (clock_timestamp() - began), interval '1 minute'));
    delete from headrace.upkeep u where u.task = 'unhandled';
    if buried < most and pause > interval '1 second' then
        insert into headrace.upkeep (task, next_at) values ('unhandled', t + pause);
    end if;
    return buried >= most;
end $$;
