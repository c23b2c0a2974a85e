-- The problem with one limit of a queue; null: none.
create or replace function headrace._limit_problem(entry jsonb) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case
        when jsonb_typeof(entry) <> 'object'
            then 'QU001 a limit is an object of scope, match or prefix, at_once, rate, per and burst'
        when unknown <> '{}'
            then format('QU001 a limit has no field %L',
                        (select name from jsonb_object_keys(unknown) name order by name limit 1))
        when (l -> 'scope' in ('"queue"', '"type"', '"tag"', '"key"')) is not true
            then 'QU001 the scope of a limit is queue, type, tag or key'
        when l ->> 'scope' in ('queue', 'key') and l ?| '{match,prefix}'
            then format('QU001 a limit of the scope %s has no match and no prefix', l ->> 'scope')
        when l ->> 'scope' in ('type', 'tag') and (l ? 'match') = (l ? 'prefix')
            then format('QU001 a limit of the scope %s has a match or a prefix, one of them', l ->> 'scope')
        when l ->> 'scope' in ('type', 'tag')
            and (jsonb_typeof(coalesce(l -> 'match', l -> 'prefix')) <> 'string'
                 or length(coalesce(l ->> 'match', l ->> 'prefix'))
                    not between 1 and case l ->> 'scope' when 'type' then 200 else 100 end)
            then 'QU001 the match or prefix of a limit is a text of 1 to 200 characters for types, 1 to 100 for tags'
        when l ->> 'scope' = 'key' and l ? 'at_once'
            then 'QU001 a limit of the scope key has no at_once: the events of a key are one at a time already'
        when l ? 'at_once' and not headrace._is_whole_number(l -> 'at_once', 1, 1000000)
            then 'QU001 the at_once of a limit is a whole number from 1 to 1000000'
        when l ? 'rate' and not headrace._is_whole_number(l -> 'rate', 1, 1000000)
            then 'QU001 the rate of a limit is a whole number from 1 to 1000000'
        when l ? 'per' and (l @? 'strict $.per ? (@ >= 0.001 && @ <= 2678400)') is not true
            then 'QU001 the per of a limit is a number of seconds from 0.001 to 2678400, 31 days'
        when l ? 'burst' and not headrace._is_whole_number(l -> 'burst', 0, 1000000)
            then 'QU001 the burst of a limit is a whole number from 0 to 1000000'
        when not l ?| '{at_once,rate}'
            then 'QU001 a limit has at_once, or a rate, or both'
        when (l ? 'rate') <> (l ? 'per')
            then 'QU001 a limit has rate and per together: so many starts in so many seconds'
        when l ? 'burst' and not l ? 'rate'
            then 'QU001 the burst of a limit belongs to a rate'
    end
    from (select case when jsonb_typeof(entry) = 'object' then jsonb_strip_nulls(entry) end as l) o
    cross join lateral (select l - '{scope,match,prefix,at_once,rate,per,burst}'::text[] as unknown) u
$$;
