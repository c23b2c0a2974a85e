-- The events of a file that are known in this namespace, by their numbers there: the number that
-- each has here, whether it is still stored, and whether this queue had it before, or it was
-- erased, so that no worker gets it. If the file is from this database, or from a copy of it, the
-- event itself may be here.
create or replace function headrace._events_known_here(o headrace.open_imports, q headrace.queues, events bigint[])
returns table (event bigint, created_at timestamptz, id bigint, is_stored boolean, had boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    select m.event, m.created_at, m.id,
           case when bool_or(m.queue = q.id) then true
                else exists (select from headrace._stored_event(m.id, m.created_at)) end,
           case when bool_or(m.queue = q.id) then true else headrace._is_erased(m.id) end
    from headrace.imported m
    where m.origin = o.origin and m.namespace = q.namespace and m.event = any (_events_known_here.events)
    group by m.event, m.created_at, m.id;
    if not o.kept_ids and o.origin = (select i.id from headrace.identity i) then
        return query
        select s.id, s.created_at, s.id, true, case when s.status is null then headrace._is_erased(s.id) else true end
        from headrace._event_states(q, _events_known_here.events) s
        where not exists (
            select from headrace.imported m
            where m.origin = o.origin and m.namespace = q.namespace and m.event = s.id and m.created_at = s.created_at);
    end if;
end $$;
