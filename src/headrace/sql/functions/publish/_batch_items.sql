-- The events of a document that publish takes, each with its place, from 1. The function takes a
-- group's payloads out of it first: otherwise each member would carry all of them along.
create or replace function headrace._batch_items(events jsonb) returns table (place bigint, event jsonb, payload jsonb)
language plpgsql immutable
as $$
begin
    perform headrace._raise_problem(case
                when jsonb_typeof(e.event) <> 'object'
                    then 'QU001 an event is a JSON object'
                when e.event ? 'payloads'
                    and (e.event ?| '{payload,idempotency_key,unique,debounce}'
                         or jsonb_typeof(e.event -> 'payloads') <> 'array')
                    then 'QU001 payloads is an array that stands instead of the payload, and goes without an '
                         'idempotency key, a unique key or a debounce key' end, e.n)
    from jsonb_array_elements(events) with ordinality as e(event, n)
    where jsonb_typeof(e.event) <> 'object' or e.event ? 'payloads';
    if not found then
        return query
        select e.n, e.event, e.event -> 'payload' from jsonb_array_elements(events) with ordinality as e(event, n);
    else
        return query
        with given as materialized (
            select e.n, e.event - '{payload,payloads}'::text[] as event,
                   coalesce(e.event -> 'payloads', jsonb_build_array(coalesce(e.event -> 'payload', '{}'))) as payloads
            from jsonb_array_elements(events) with ordinality as e(event, n)
        )
        select row_number() over (order by g.n, p.n), g.event, p.payload
        from given g cross join lateral jsonb_array_elements(g.payloads) with ordinality as p(payload, n);
    end if;
end $$;
