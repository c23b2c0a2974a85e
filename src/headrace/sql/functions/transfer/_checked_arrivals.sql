-- The events of a part of a file, checked, each with its number here: the number that it already
-- has here, the number of the file, or the next one. In the order of their old numbers. See
-- _import_events.
create or replace function headrace._checked_arrivals(
    o headrace.open_imports, q headrace.queues, events jsonb, t timestamptz
) returns headrace.arrival[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_nestloop = off   -- a nested loop over two lists is quadratic
as $$
#variable_conflict use_column
declare
    n headrace.namespaces;
    items jsonb[];
    heads headrace.head[];
    known bigint[];         -- their numbers in this database; null: none
    stored boolean[];       -- the event itself is here
    had boolean[];          -- this queue had it
    arrived headrace.arrival[];
begin
    if jsonb_typeof(events) is distinct from 'array' then
        raise exception using errcode = 'QU001', message = 'a part of an exported state is an array of events';
    end if;
    items := array(
        select e.item from jsonb_array_elements(events) with ordinality as e(item, place)
        where headrace._raise_problem(headrace._arrival_problem(e.item, o.last_id, o.kept_ids, t), e.place) is null
        order by (e.item -> 'id')::bigint);
    if items = '{}' then
        return '{}';
    elsif (select count(distinct i.item -> 'id') from unnest(items) as i(item)) < cardinality(items) then
        raise exception using errcode = 'QU001', message = 'an event is in a part of an exported state once';
    end if;
    select s.* into n from headrace.namespaces s where s.id = q.namespace;
    heads := headrace._batch_headers(n, array(
        select coalesce(i.item -> 'details', '{}') || (
                   select jsonb_object_agg(f.key, f.value) from jsonb_each(i.item) f
                   where f.key in ('type', 'tags', 'priority', 'max_retries', 'key'))
        from unnest(items) with ordinality as i(item, place) order by i.place
    ), array(select generate_series(1, cardinality(items))::bigint), t);

    select array_agg(k.id order by i.place), array_agg(coalesce(k.is_stored, false) order by i.place),
           array_agg(coalesce(k.had, false) order by i.place)
    into known, stored, had
    from unnest(items) with ordinality as i(item, place)
    left join headrace._events_known_here(o, q, array(select (n.item -> 'id')::bigint from unnest(items) as n(item))) k
        on k.event = (i.item -> 'id')::bigint and k.created_at = (i.item ->> 'created_at')::timestamptz;

    select array_agg(row(
        r.old_id, r.id, r.is_stored, r.was_here,
        case when r.place = 'dead' then 'dead' when r.due_at > t then 'delayed' else 'ready' end,
        r.created_at, r.due_at, h.type, h.tags, h.route, h.priority, h.max_retries, h.details, h.key, r.payload,
        coalesce(r.attempts, 0), coalesce(r.retry_count, 0), coalesce(r.crashes, 0), coalesce(r.suspect, false),
        coalesce(r.holds_key, false), r.item - '{payload,details}'::text[]
    )::headrace.arrival order by r.n) into arrived
    from (
        select u.n, u.item, j.id as old_id,
               coalesce(u.known, case when o.kept_ids then j.id else nextval('headrace.ids') end) as id,
               u.is_stored, u.had as was_here, u.item -> 'payload' as payload,
               j.place, j.created_at, j.due_at, j.attempts, j.retry_count, j.crashes, j.suspect, j.holds_key
        from unnest(items, known, stored, had) with ordinality as u(item, known, is_stored, had, n)
        cross join lateral jsonb_to_record(u.item) as j(
            id bigint, place text, created_at timestamptz, due_at timestamptz, attempts int, retry_count smallint,
            crashes smallint, suspect boolean, holds_key boolean)
        order by u.n
    ) r
    join unnest(heads) h on h.n = r.n;
    return arrived;
end $$;
