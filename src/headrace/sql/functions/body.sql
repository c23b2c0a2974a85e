-- The stored event of a delivery, wherever it lies.
create or replace function headrace.body(event bigint, created_at timestamptz) returns setof headrace.events
language sql stable rows 1
as $$
    select e.* from headrace.events e where e.id = body.event and e.created_at = body.created_at
    union all
    select c.* from headrace.events_carried c
    where c.id = body.event
      and not exists (select from headrace.events e where e.id = body.event and e.created_at = body.created_at)
$$;
