-- Whether an event is fine at a glance: nothing but a type and a small payload. Such a payload needs no thorough look:
-- 300 characters cannot be nested deeper than 150, nor hold a number outside the range of a double.
create or replace function headrace.harmless(event jsonb, type text, payload jsonb) returns boolean
language sql stable parallel safe
as $$
    select jsonb_typeof(event) = 'object' and event - '{type,payload}'::text[] = '{}'
       and jsonb_typeof(event -> 'type') = 'string'
       and length(type) between 1 and 200 and type !~ '[,*[:cntrl:]]'
       and pg_column_size(payload) <= 1000 and octet_length(payload::text) <= 300
$$;
