-- The number that an event of another database has in this namespace, whether it is still stored, and whether this queue had it before;
-- nothing: it is not known here.
-- Of the file's own database, and of a copy of it, the event itself may be here.
create or replace function headrace.known_here(o headrace.open_imports, q headrace.queues, event bigint, created_at timestamptz)
returns table (id bigint, is_stored boolean, had boolean)
language plpgsql stable rows 1
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    return query
    select m.id, exists (select from headrace.body(m.id, known_here.created_at)), bool_or(m.queue = q.id) from headrace.imported m
    where m.origin = o.origin and m.event = known_here.event and m.namespace = q.namespace and m.created_at = known_here.created_at
    group by m.id limit 1;
    if not found and not o.kept_ids and o.origin = (select i.id from headrace.identity i)
       and exists (select from headrace.body(known_here.event, known_here.created_at) b where b.created_at = known_here.created_at) then
        return query
        select s.id, true, s.status is not null from headrace.standing(q, array[known_here.event]) s
        where s.created_at = known_here.created_at;
    end if;
end $$;
