-- Why a queue did not get an event: see why.
create or replace function headrace._why_not_delivered(q headrace.queues, s headrace.shown)
returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select 'not_delivered',
           case c.cause
               when 'filling' then format('the queue %s takes earlier events, too, and has not got all of them yet',
                                          q.name)
               when 'switched_off' then format('the queue %s is switched off, and takes no events', q.name)
               when 'filter' then format('the queue %s takes %s%s, and this event is of type %s%s', q.name,
                                         coalesce('types ' || array_to_string(q.types, ', '), 'every type'),
                                         ' with the tags ' || array_to_string(q.tags, ', '), s.type,
                                         ' with the tags ' || array_to_string(s.tags, ', '))
               else format('it was published before the queue %s took such events', q.name) end,
           null::timestamptz, null::timestamptz, jsonb_build_object('cause', c.cause)
    from (
        select case when exists (select from headrace.chores o where o.queue = q.id and o.task = 'fill')
                         and q.takes then 'filling'
                    when not q.takes then 'switched_off'
                    when q.id <> all (headrace._queues_taking(q.namespace, q.version, s.type, s.tags)) then 'filter'
                    else 'earlier' end as cause
    ) c
$$;
