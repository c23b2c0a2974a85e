-- The number of events that the same filter of headrace.events selects: exact up to `most`; if
-- there are more, `most` and is_exact = false.
-- Raises QU001, QU010, QU011.
create or replace function headrace.count_events(
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
    most int default 10000,
    out total bigint,
    out is_exact boolean
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    q headrace.queues;
    wanted headrace.wanted;
begin
    perform headrace._check_access(count_events.namespace);
    if most is null or most not between 1 and 100000 then
        raise exception using errcode = 'QU001', message = 'most is a number from 1 to 100000';
    end if;
    select * into q from headrace.queues o where o.space = namespace and o.name = queue;
    if not found then
        perform headrace._raise_no_such_queue(namespace, queue);
    end if;
    wanted := headrace._checked_filter(q, statuses, types, tags, all_tags, since, until, key, orphaned, orphan_after);
    total := 0;
    if wanted.unfiltered and 'PENDING' = any (wanted.statuses) then     -- needs no ids
        total := headrace._depth(q.id, most + 1)
            + (select count(*) from (select from headrace.delayed d where d.queue = q.id order by d.event
                                     limit most + 1) d);
        wanted.statuses := array_remove(wanted.statuses, 'PENDING');
    end if;
    if total <= most then
        total := total + (select count(distinct c)
                          from headrace._matching_events(q, wanted, 0, 9223372036854775807, true, most + 1) c);
    end if;
    is_exact := total <= most;
    total := least(total, most);
end $$;
