-- Stores events that have all but their payloads in common, and returns their ids. The payloads go
-- from the document to the table without a step in between, which would copy all of them.
create or replace function headrace._store_alike(
    space int, version int, route bigint, priority smallint, max_retries smallint, type text, tags text[],
    details jsonb, key text, payloads jsonb, t timestamptz
) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    ids bigint[];
begin
    with stored as (
        insert into headrace.events (id, created_at, route, namespace, version, priority, max_retries, type, tags,
                                     payload, details, key)
        select nextval('headrace.ids'), t, route, space, version, priority, max_retries, type, tags, p.payload,
               details, key
        from jsonb_array_elements(payloads) with ordinality as p(payload, place)
        where case when headrace._payload_is_plain(p.payload) then true
                   else headrace._raise_problem(headrace._payload_problem(p.payload), p.place) is null end
        returning id
    )
    select array_agg(s.id) into ids from stored s;
    return ids;
end $$;
