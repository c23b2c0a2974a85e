-- The dead letters of a queue, the newest event first, a page at a time.
-- types: any may hold asterisks; fingerprint: of one kind of error, see dead_letter_groups; since,
-- until: died from the one to before the other; null: all. before: only ids below, for paging.
-- payload: whether to include it; otherwise it is null.
-- Raises QU001, QU010, QU011.
create or replace function headrace.dead_letters(
    namespace text,
    queue text default 'main',
    types text[] default null,
    fingerprint text default null,
    since timestamptz default null,
    until timestamptz default null,
    "limit" int default 20,
    before bigint default null,
    payload boolean default false
) returns setof headrace.letter
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
    q headrace.queues := headrace._queue_named(namespace, queue);
    patterns constant text[] := array(select headrace._like_pattern(t) from unnest(types) t);
begin
    if "limit" is null or "limit" not between 1 and 1000 then
        raise exception using errcode = 'QU001', message = 'limit is a number from 1 to 1000';
    elsif cardinality(types) not between 1 and 1000 or array_position(types, null) is not null then
        raise exception using errcode = 'QU001', message = 'a filter names 1 to 1000 types, or null for all of them';
    end if;
    return query
    select x.event, x.type, x.tags, case when dead_letters.payload then headrace._readable_json(x.payload) end,
           headrace._readable_json(x.details), x.priority, x.status, x.reason, x.error,
           x.fingerprint, x.attempts, x.failures, x.crashes, coalesce(x.max_retries, r.max_retries, q.max_retries),
           x.created_at, x.died_at, x.key
    from headrace.dead_letters x
    left join lateral (     -- the limit that applied to its last failure, which may be its handler's
        select r.max_retries from headrace.errors r where r.event = x.event and r.queue = x.queue
        order by r.outcome desc limit 1
    ) r on true
    where x.queue = q.id and x.event < coalesce(before, 9223372036854775807)
      and (types is null or x.type like any (patterns))
      and (dead_letters.fingerprint is null or x.fingerprint = dead_letters.fingerprint)
      and (since is null or x.died_at >= since) and (until is null or x.died_at < until)
    order by x.event desc limit "limit";
end $$;
