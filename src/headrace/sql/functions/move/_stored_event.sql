-- The stored event of a delivery, in any table. Not a function that is inlined: as a part of a
-- larger plan it would open every month, and lock it.
create or replace function headrace._stored_event(event bigint, created_at timestamptz) returns setof headrace.events
language plpgsql stable strict rows 1
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_variable
begin
    return query select e.* from headrace.events e where e.id = event and e.created_at = created_at;
    if not found then
        return query select c.* from headrace.events_carried c where c.id = event;
    end if;
end $$;
