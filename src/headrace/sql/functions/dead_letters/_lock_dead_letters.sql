-- The dead letters of a queue that the filter selects and that died no later than a time, the
-- longest dead first, at most `most`; locked for the caller. ids, types, fingerprint: only these;
-- null: all. Skips locked rows, and, unless `hollow` includes them, dead letters without an event. It
-- also skips those whose unique key another unfinished event holds, unless `ids` name them: they
-- cannot be redriven now.
-- Raises QU001.
create or replace function headrace._lock_dead_letters(
    q headrace.queues, ids bigint[], types text[], fingerprint text, until timestamptz, most int,
    hollow boolean default false
) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_custom_plan   -- what is not asked for must not keep an index from being used
as $$
#variable_conflict use_column
declare
    patterns constant text[] := array(select headrace._like_pattern(p) from unnest(types) p);
begin
    if types is not null and (cardinality(types) not between 1 and 1000 or array_position(types, null) is not null) then
        raise exception using errcode = 'QU001', message = 'a filter names 1 to 1000 types, or null for all of them';
    end if;
    return array(
        select x.event from headrace.dead_letters x
        where x.queue = q.id and x.died_at <= _lock_dead_letters.until
          and (_lock_dead_letters.ids is null or x.event = any (_lock_dead_letters.ids))
          and (_lock_dead_letters.types is null or x.type like any (patterns))
          and (_lock_dead_letters.fingerprint is null or x.fingerprint = _lock_dead_letters.fingerprint)
          and (hollow or x.route <> 0)
          and (hollow or _lock_dead_letters.ids is not null
               or not headrace._unique_key_is_held(q.namespace, x.details ->> 'unique', x.event))
        order by x.died_at, x.event limit most
        for update skip locked);
end $$;
