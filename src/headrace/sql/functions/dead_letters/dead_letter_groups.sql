-- The dead letters of a queue by kind of error, the most frequent kind first: their number, the
-- first and last time, their types (ten at most), and the three that died last, with the message of
-- the last one. Reads an index, not the letters.
-- Raises QU001, QU010, QU011.
create or replace function headrace.dead_letter_groups(
    namespace text, queue text default 'main', "limit" int default 100
) returns table (fingerprint text, message text, types text[], letters bigint, first_died_at timestamptz,
               last_died_at timestamptz, sample_ids bigint[])
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    q headrace.queues := headrace._queue_named(dead_letter_groups.namespace, dead_letter_groups.queue);
begin
    if "limit" is null or "limit" not between 1 and 1000 then
        raise exception using errcode = 'QU001', message = 'limit is a number from 1 to 1000';
    end if;
    return query
    select g.fingerprint, (
               select headrace._error_line(x.reason, x.error) from headrace.dead_letters x where x.queue = q.id
                   and x.event = s.ids[1]
           ), g.types[:10], g.letters, g.first, g.last, s.ids
    from (
        select x.fingerprint, array_agg(x.type order by x.type) as types, sum(x.letters)::bigint as letters,
               min(x.first) as first, max(x.last) as last
        from (
            select x.fingerprint, x.type, count(*) as letters, min(x.died_at) as first, max(x.died_at) as last
            from headrace.dead_letters x where x.queue = q.id
            group by x.fingerprint, x.type
        ) x
        group by x.fingerprint
        order by sum(x.letters) desc, x.fingerprint limit dead_letter_groups."limit"
    ) g
    cross join lateral (
        select array(
            select x.event from headrace.dead_letters x where x.queue = q.id and x.fingerprint = g.fingerprint
            order by x.died_at desc, x.event desc limit 3) as ids
    ) s
    order by g.letters desc, g.fingerprint;
end $$;
