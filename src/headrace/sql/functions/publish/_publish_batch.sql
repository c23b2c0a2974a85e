-- Stores and queues any number of events with a few statements: see publish. checked: the caller
-- may publish in the namespace; a tick publishes in all of them, whichever role calls it. asked: as
-- in publish; null stores events whatever the home of their keys.
create or replace function headrace._publish_batch(
    namespace text, events jsonb, enforce boolean, t timestamptz, checked boolean default true,
    asked boolean default false,
    out ids bigint[], out pressure boolean, out repeated int[], out created_at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    space headrace.namespaces;
    heads headrace.head[];
    payloads jsonb[];       -- of the events, in their order
    which int[];            -- the head of each of them
    places bigint[];        -- of those that are stored
    takers int[];
    alike jsonb;
    drawn bigint[];
begin
    select * into space from headrace.namespaces s
    where s.name = _publish_batch.namespace and (not s.bound or not checked or headrace._has_access(s.name));
    if not found then
        perform headrace._raise_no_such_queue(_publish_batch.namespace, 'main');
    end if;
    created_at := t;
    pressure := false;
    if jsonb_typeof(events) = 'object' then
        events := jsonb_build_array(events);
    elsif jsonb_typeof(events) is distinct from 'array' then
        raise exception using errcode = 'QU001', message = 'publish takes a JSON array of events, or one event';
    end if;

    if jsonb_array_length(events) = 1 then
        alike := events #> '{0,payloads}';  -- in one expression, as below: an extra step would copy it all
        if jsonb_typeof(alike) = 'array' and not events @? '$[0].payload'
           and not events @? '$[0] ? (exists (@.idempotency_key) || exists (@.unique) || exists (@.debounce))' then
            heads := headrace._batch_headers(space, array[(events #- '{0,payloads}') -> 0], '{1}', t);
            if alike <> '[]' then
                if space.sharded then
                    perform headrace._check_homes(space, heads, asked, t);
                end if;
                select * into ids, pressure from headrace._publish_alike(space, heads[1], alike, enforce, t);
            end if;
            ids := coalesce(ids, '{}');
            return;
        end if;
    end if;
    with given as materialized (
        select g.place, g.event - '{payload,payloads}'::text[] as header, g.payload from headrace._batch_items(events) g
    ),
    header as materialized (
        select row_number() over (order by min(place)) as n, min(place) as place, header from given group by header
    )
    select (select headrace._batch_headers(space, array_agg(h.header order by h.n), array_agg(h.place order by h.n), t)
            from header h),
           array_agg(g.payload order by g.place), array_agg(h.n order by g.place)
    into heads, payloads, which
    from given g join header h on h.header = g.header;
    if payloads is null then
        ids := '{}';
        return;
    end if;

    takers := array(select distinct q from unnest(heads) h, unnest(h.queues) q);
    if exists (select from unnest(heads) h where coalesce(h.idempotency_key, h.unique_key) is not null) then
        select * into ids, repeated, created_at from headrace._take_idempotency_keys(space, heads, payloads, which, t);
        select * into ids, repeated, created_at
        from headrace._take_unique_keys(space, heads, which, ids, repeated, created_at, t);
        if cardinality(repeated) = cardinality(payloads) then   -- also when the queue is full by now
            perform headrace._confirm_stored();
            return;
        end if;
    end if;
    if space.sharded then
        perform headrace._check_homes(space, heads, asked, t);
    end if;
    if space.guarded then
        pressure := headrace._check_capacity(takers, enforce or not headrace._is_administrator(), t);
    end if;

    drawn := headrace._store_batch(space, heads, payloads, which, _publish_batch.ids, repeated, t);
    if drawn[1] <= space.floor then
        perform headrace._raise_ids_behind(drawn[1]);
    end if;
    if exists (select from unnest(heads) h where h.due_at > t or coalesce(h.key, h.debounce) is not null) then
        select array_agg(u.head order by u.place), array_agg(u.place order by u.place) into which, places
        from unnest(which) with ordinality as u(head, place) where repeated is null or u.place <> all (repeated);
        perform headrace._enqueue_delayed_and_keyed(heads, drawn, which, t);
        if exists (select from unnest(heads) h where h.debounce is not null) then
            perform headrace._enqueue_debounced(heads, drawn, which, places, t);
        end if;
    end if;
    ids := coalesce(ids, drawn);
    perform headrace._wake(q) from unnest(takers) q;
end $$;
