-- Claims as poll does and returns the same in fewer rows, for clients: a row that names many events
-- states their common values once. For a batch that was published together this takes half of
-- poll's time, in the server as in the client. Where a row names several events, poll's order is
-- that of priority and id over all rows. payloads and details are JSON arrays (details null: none
-- has any); created: 8 bytes each, or once if all are of one moment.
-- A claim that finds nothing but deliveries that wait for a rate returns one row without ids: its
-- look_in is the number of seconds after which the first of them may start.
-- Raises what poll raises.
create or replace function headrace.poll_batch(
    namespace text,
    queue text default 'main',
    types text[] default null,
    tags text[] default null,
    all_tags boolean default false,
    worker text default null,
    max_events int default 1,
    lease interval default null,
    "each" boolean default false,
    suspects boolean default true,
    hints text default null,
    sweep boolean default false,
    instance uuid default null,
    dispatch text default 'atomic',
    limited int default null
) returns setof headrace.alike
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off     -- rows are found in the order of an index, never collected and sorted
set enable_sort = off
set enable_nestloop = off       -- the bodies are joined by a hash: a nested loop takes three times as long
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    lot headrace.lot := coalesce(
        case when max_events = 1 and hints is not null and not sweep then headrace._claim_one(
            namespace, queue, worker, lease, "each", suspects, hints, instance, dispatch) end,
        headrace._claim(
            namespace, queue, types, tags, all_tags, worker, max_events, lease, "each", suspects, hints, sweep,
            instance, dispatch, limited));
    first headrace.events;
    at_once boolean;    -- all of them were published at one moment
    alike boolean;
    nothing headrace.alike;
begin
    if lot.lease is null then
        if lot.look_in is not null then
            nothing.ids := '{}';
            nothing.look_in := lot.look_in;
            return next nothing;
        end if;
        return;
    elsif cardinality(lot.events) = 1 and not headrace._plans_by_month() then
        return query
        select array[e.id], '[' || e.payload::text || ']', '[' || e.details::text || ']', e.type, e.tags,
               lot.attempts[1], lot.priorities[1], lot.failures[1], coalesce(lot.crashes[1], 0::smallint),
               coalesce(e.max_retries, lot.max_retries), timestamptz_send(e.created_at), lot.lease, lot.held,
               lot.until, lot.hints, lot.lease_token, lot.picked_at, null::float8
        from headrace.events e where e.id = lot.events[1] and e.created_at = lot.created[1];
    elsif lot.is_plain and not headrace._plans_by_month() then
        -- All columns are gathered from the same rows: the claim may have them in another order,
        -- because packs of publishers at the same moment overlap. One statement goes from the table
        -- to the reply: each variable on the way would be a copy. Long payloads go one by one:
        -- together they might need more memory than there is. A claim whose first and last event
        -- differ is of several kinds, and has a row for each.
        select e.type, e.tags, e.max_retries, e.priority into first.type, first.tags, first.max_retries, first.priority
        from headrace.events e where e.id = lot.events[1] and e.created_at = lot.created[1];
        at_once := lot.created[1] = all (lot.created);
        alike := exists (
            select from headrace.events e
            where e.id = lot.events[cardinality(lot.events)] and e.created_at = lot.created[cardinality(lot.events)]
              and e.type = first.type and e.tags is not distinct from first.tags and e.priority = first.priority);
        if alike then
            return query
            select array_agg(e.id), json_agg(case when pg_column_size(e.payload) <= 2000 then e.payload end)::text,
                   (json_agg(e.details) filter (where e.details is not null))::text,
                   first.type, first.tags, 1, first.priority, 0::smallint, 0::smallint,
                   coalesce(first.max_retries, lot.max_retries),
                   case when at_once then timestamptz_send(lot.created[1])
                        else string_agg(case when not at_once then timestamptz_send(e.created_at) end, '') end,
                   lot.lease, lot.held, lot.until, lot.hints, lot.lease_token, lot.picked_at, null::float8
            from (
                select e.id, e.created_at, e.payload, e.details, e.type, e.tags, e.max_retries from headrace.events e
                where e.id = any (lot.events)
                  and e.created_at between (select min(c) from unnest(lot.created) c)
                      and (select max(c) from unnest(lot.created) c)
                order by e.id
            ) e
            having count(*) = cardinality(lot.events) and count(e.details) in (0, count(*)) and bool_and(
                pg_column_size(e.payload) <= 2000 and e.type = first.type and e.tags is not distinct from first.tags
                and e.max_retries is not distinct from first.max_retries);
            alike := found;
        end if;
        if not alike then
            return query select * from headrace._claimed_by_kind(lot);
        end if;
    end if;
    if not found then
        return query
        select array[b.id], json_build_array(b.payload)::text,
               case when b.details is not null then json_build_array(b.details)::text end,
               b.type, b.tags, b.attempt, b.priority, b.retry_count, b.crashes, b.max_retries,
               timestamptz_send(b.created_at),
               b.lease, b.held, b.lease_expires_at, b.hints, b.lease_token, b.processing_started_at,
               null::float8
        from headrace._claimed_events(lot) b;
    end if;
end $$;
