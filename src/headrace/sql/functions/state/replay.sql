-- Reads the events of a queue again, in the order of their ids: the events that it takes now, by
-- its types and tags, however they ended. It skips no event that commits late: it returns an event
-- only once no transaction can commit one below it any more.
-- after: only events above this id, a checkpoint for example; since: only events published from
-- this time on; types: only these, any may hold asterisks. replay does not return events that
-- retention has dropped, that were erased, or that were only recorded (core.append_event_log). The
-- last row is no event (its type is null), and is for the next call: the next call continues at its
-- id, and next_mark also holds the end at the time of the first call. done: the end has been
-- reached. Not done, and no event: an open transaction may still publish before the end; held_by
-- names it. If a standby was promoted between two calls, or a backup restored, replay goes back and
-- returns events again rather than skip any: rewound_to is the event after which; the mark shows
-- this, an id alone does not. See _resumed_reading.
-- Cost: grows with the events that are read, 20,000 a call; with `since`, the earlier events of its
-- month come on top.
-- Concurrency: never waits. Raises QU001, QU010, QU011, QU015 for an id beyond the last, QU030
-- outside READ COMMITTED, and 25006 on a standby.
create or replace function headrace.replay(
    namespace text, queue text default 'main', after bigint default 0, since timestamptz default null,
    types text[] default null,
    "limit" int default 100, mark text default null
)
returns table (id bigint, type text, tags text[], payload jsonb, details jsonb, priority smallint,
               max_retries smallint, key text,
               created_at timestamptz, next_mark text, done boolean, held_by text, rewound_to bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
    most constant int := 20000;
    q headrace.queues := headrace._queue_named(replay.namespace, replay.queue);
    parts constant text[] := regexp_match(mark, '^([0-9]{1,18}) (.*)$');
    r headrace.reading;
    goal bigint;
    upto bigint;
    routes bigint[];
    position bigint;
    looked int;
    told int;
    last_looked bigint;
    last_told bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'replay needs READ COMMITTED: it tells what others have just committed';
    elsif after is null or "limit" is null or "limit" not between 1 and 1000 then
        raise exception using errcode = 'QU001',
            message = 'replay goes on after the id of an event, with a limit from 1 to 1000';
    end if;
    r := headrace._resumed_reading(after, parts[2], 1);
    r.known := headrace._advance_horizon(r.known, pg_backend_pid());
    goal := least(parts[1]::bigint, r.drawn);   -- numbers drawn before a promotion may be undrawn now
    upto := least(goal, (r.known).final);
    position := r.position;
    if types is not null or q.types is not null or q.tags is not null then
        routes := headrace._filtered_routes(q.namespace, q.types, q.tags, q.all_tags);
        if types is not null then
            routes := array(select unnest(routes) intersect select unnest(headrace._filtered_routes(q.namespace, types,
                null, false)));
        end if;
    end if;
    if position < upto then
        for id, type, tags, payload, details, priority, max_retries, key, created_at, looked, last_looked in
            with seen as materialized (
                select o.* from (
                    (select e.* from headrace.events e
                     where e.id > position and e.id <= upto and e.created_at >= coalesce(replay.since, '-infinity')
                     order by e.id limit most)
                    union all
                    (select c.* from headrace.events_carried c
                     where c.id > position and c.id <= upto and c.created_at >= coalesce(replay.since, '-infinity')
                     order by c.id limit most)
                ) o
                order by o.id limit most
            ),
            its as (
                select s.* from seen s
                where s.namespace = q.namespace and (routes is null or s.route = any (routes))
                  and s.version < 2147483647    -- recorded and never published: see core.append_event_log
                  and case when s.payload = '{"erased": true}' then not exists (
                          select from headrace.outcomes o
                          where o.bucket = headrace._bucket(s.id) and o.queue = 0 and o.action = 'ERASED'
                            and s.id = any (o.events))
                              else true end
                order by s.id limit "limit"
            )
            select i.id, i.type, i.tags, headrace._readable_json(i.payload), headrace._readable_json(i.details),
                   i.priority, i.max_retries, i.key, i.created_at, n.looked, n.last
            from (select count(*)::int as looked, max(s.id) as last from seen s) n left join its i on true
            order by i.id
        loop
            told := coalesce(told, 0) + 1;
            last_told := id;
            if id is not null then
                return next;
            end if;
        end loop;
        position := case when told = "limit" and last_told is not null then last_told
                         when looked = most then last_looked else upto end;
    end if;
    r.position := position;
    r.after := greatest(r.after, last_told);
    next_mark := headrace._reading_mark(r, 1);
    id := substring(next_mark from '-([0-9]+)'); type := null; tags := null; payload := null; details := null;
    priority := null; max_retries := null; key := null;
    created_at := null;
    next_mark := goal || ' ' || next_mark;
    done := position >= goal;
    held_by := case when position >= upto and not done then headrace._oldest_writer((r.known).awaited) end;
    rewound_to := r.rewound_to;
    return next;
end $$;
