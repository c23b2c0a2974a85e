-- The events that a filter selects and the status of their deliveries in a queue, the newest first
-- or the oldest first, a page at a time.
-- statuses: any of PENDING, PROCESSING, COMPLETED, COMPLETED_WITH_ERRORS, FAILED, CANCELLED; types:
-- any may hold asterisks; tags: any of them, or all of them; since, until: created from the one to
-- before the other; key: the ordering key; null: everything.
-- orphaned: only deliveries that have been in progress for orphan_after and left no entry in the
-- log since.
-- after, before: only ids between these, for paging without counting skipped rows. payload: whether
-- to include it; otherwise it is null. Cost: by the page and the skipped rows (offset), not by the
-- number of events stored or waiting. But a search for types, tags, a key or a time among delayed
-- or ended deliveries reads event by event, and one for cancelled deliveries outcome by outcome.
-- Raises QU001, QU010, QU011.
create or replace function headrace.events(
    namespace text,
    queue text default 'main',
    statuses text[] default null,
    types text[] default null,
    tags text[] default null,
    all_tags boolean default false,
    since timestamptz default null,
    until timestamptz default null,
    key text default null,
    orphaned boolean default false,
    orphan_after interval default '30 seconds',
    "limit" int default 20,
    "offset" int default 0,
    after bigint default null,
    before bigint default null,
    oldest_first boolean default false,
    payload boolean default false
) returns setof headrace.shown
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    q headrace.queues;
    wanted headrace.wanted;
    low bigint := coalesce(after, 0);
    high bigint := coalesce(before, 9223372036854775807);
    skip int := "offset";
    missing int := "limit";
    size int;
    chunk bigint[];
    last boolean;
    returned int;
begin
    perform headrace._check_access(events.namespace);
    if "limit" is null or "limit" not between 1 and 1000 then
        raise exception using errcode = 'QU001', message = 'limit is a number from 1 to 1000';
    elsif "offset" is null or "offset" not between 0 and 10000 then
        raise exception using errcode = 'QU001',
            message = 'offset is a number from 0 to 10000; page on with before, or after';
    end if;
    select * into q from headrace.queues o where o.space = namespace and o.name = queue;
    if not found then
        perform headrace._raise_no_such_queue(namespace, queue);
    end if;
    wanted := headrace._checked_filter(q, statuses, types, tags, all_tags, since, until, key, orphaned, orphan_after);
    loop
        size := skip + missing;
        chunk := array(select distinct c from headrace._matching_events(q, wanted, low, high, not oldest_first, size) c
                       order by c);
        exit when chunk = '{}';
        if oldest_first then
            chunk := chunk[:size];
            low := chunk[cardinality(chunk)];
        else
            chunk := chunk[greatest(1, cardinality(chunk) - size + 1):];
            high := chunk[1];
        end if;
        last := cardinality(chunk) < size;
        chunk := case when oldest_first then chunk[skip + 1:] else chunk[:cardinality(chunk) - skip] end;
        skip := 0;
        return query
        select s.id, s.type, s.tags, case when payload then s.payload end, s.details, s.priority, s.status, s.attempts,
               s.retry_count,
               s.crashes, s.max_retries, s.next_retry_at, s.worker_id, s.processing_started_at, s.lease_expires_at,
               s.created_at, s.updated_at, s.key, s.reason, s.snoozes,
               s.superseded_by
        from headrace._event_states(q, chunk) s
        where s.status = any (wanted.statuses)
        order by case when oldest_first then s.id else -s.id end;
        get diagnostics returned = row_count;
        missing := missing - returned;
        exit when missing = 0 or last;
    end loop;
end $$;
