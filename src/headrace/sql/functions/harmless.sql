-- Whether an event is fine at a glance: nothing but a type and a short payload.
create or replace function headrace.harmless(event jsonb, type text, payload jsonb) returns boolean
language sql stable parallel safe
as $$
    select jsonb_typeof(event) = 'object' and event - '{type,payload}'::text[] = '{}'
       and jsonb_typeof(event -> 'type') = 'string'
       and length(type) between 1 and 200 and type !~ '[,*[:cntrl:]]'
       and headrace.is_short(payload)
$$;
