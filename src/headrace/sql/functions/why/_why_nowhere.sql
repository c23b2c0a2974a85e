-- Why an event has no delivery in any queue, or is stored no longer: see why. No row: nothing is
-- known of it.
create or replace function headrace._why_nowhere(namespace text, event_id bigint) returns setof headrace.reason
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    home constant int := (select n.id from headrace.namespaces n where n.name = _why_nowhere.namespace);
    since constant timestamptz := headrace._earliest_time_of(array[event_id]);
    oldest constant timestamptz := headrace._oldest_partition();
    queues constant bigint := (
        select count(*) from headrace.queues q where q.space = _why_nowhere.namespace and q.takes);
begin
    if exists (select from headrace.events e where e.id = event_id and e.namespace = home
                   and (since = '-infinity' or e.created_at >= since))
       or exists (select from headrace.events_carried c where c.id = event_id and c.namespace = home) then
        return next row('no_queue', format('none of the %s queues that take events took it', queues), null, null,
                        jsonb_build_object('queues', queues))::headrace.reason;
    elsif event_id > 0 and exists (select from headrace.marks m where m.id >= event_id and m.at < oldest) then
        return next row('expired', format('no event %s is stored: what was published before %s has been removed',
                                          event_id, headrace._spoken_time(oldest)),
                        null, null, jsonb_build_object('stored_since', oldest))::headrace.reason;
    end if;
end $$;
