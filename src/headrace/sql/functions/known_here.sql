-- The events of a file that are known in this namespace, by their numbers there: the number that each has here, whether it is still stored,
-- and whether this queue had it before, or it was erased, so that nobody gets it. Of the file's own database, and of a copy of it, the event
-- itself may be here.
create or replace function headrace.known_here(o headrace.open_imports, q headrace.queues, events bigint[])
returns table (event bigint, created_at timestamptz, id bigint, is_stored boolean, had boolean)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    select m.event, m.created_at, m.id,
           case when bool_or(m.queue = q.id) then true else exists (select from headrace.body(m.id, m.created_at)) end,
           case when bool_or(m.queue = q.id) then true else headrace.is_erased(m.id) end
    from headrace.imported m
    where m.origin = o.origin and m.namespace = q.namespace and m.event = any (known_here.events)
    group by m.event, m.created_at, m.id;
    if not o.kept_ids and o.origin = (select i.id from headrace.identity i) then
        return query
        select s.id, s.created_at, s.id, true, case when s.status is null then headrace.is_erased(s.id) else true end
        from headrace.standing(q, known_here.events) s
        where not exists (
            select from headrace.imported m
            where m.origin = o.origin and m.namespace = q.namespace and m.event = s.id and m.created_at = s.created_at);
    end if;
end $$;
