-- The events related to an event: its cause, its effects, and other events with its correlation id,
-- by ids and at most `limit` of each; with the status of their deliveries in a queue. Of the events
-- with its correlation id the first ones, without the event itself and without those listed before.
-- The event whose id is the correlation id, as the first of a chain is, belongs to them.
-- Raises QU001, QU010, QU011, QU012.
create or replace function headrace.lineage(
    namespace text, event_id bigint, queue text default 'main', "limit" int default 50
) returns table (relation text, id bigint, type text, status text, created_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    q headrace.queues := headrace._queue_named(lineage.namespace, lineage.queue);
    number constant text := '^[1-9][0-9]{0,17}$';
    shown headrace.shown;
    cause text;
    correlation text;
    causes bigint[];
    caused bigint[];
    others bigint[];
begin
    if "limit" is null or "limit" not between 1 and 1000 then
        raise exception using errcode = 'QU001', message = 'limit is a number from 1 to 1000';
    end if;
    select s.* into shown from headrace._event_states(q, array[event_id]) s;
    if not found then
        raise exception using errcode = 'QU012', message = format('there is no event %s in the namespace %L', event_id,
                                                                  lineage.namespace);
    end if;
    cause := shown.details ->> 'causation_id';
    correlation := shown.details ->> 'correlation_id';
    causes := case when cause ~ number then array[cause::bigint] else '{}' end;
    caused := array(
        select e.id from headrace.events e
        where e.details ->> 'causation_id' = event_id::text and e.details ->> 'causation_id' is not null
          and e.namespace = q.namespace
        order by e.id limit lineage."limit");
    correlation := coalesce(correlation, event_id::text);
    others := case when correlation ~ number then array[correlation::bigint] else '{}' end || array(
        select e.id from headrace.events e
        where e.details ->> 'correlation_id' = correlation and e.details ->> 'correlation_id' is not null
          and e.namespace = q.namespace
        order by e.id limit lineage."limit");
    return query
    select k.relation, s.id, s.type, s.status, s.created_at
    from (values (1, 'caused_by', causes), (2, 'causes', caused), (3, 'correlated', others)) as k(place, relation, ids)
    cross join lateral headrace._event_states(q, k.ids) s
    where s.id <> event_id and not (k.place = 3 and (s.id = any (causes) or s.id = any (caused)))
    order by k.place, s.id;
end $$;
