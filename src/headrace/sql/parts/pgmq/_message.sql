-- The message of a claimed event for pgmq's caller: the payload, or, of a namespace's main, the
-- envelope.
create or replace function pgmq._message(kind text, namespace text, b headrace.claimed) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case when kind = 'own' then b.payload
                else pgmq._envelope(namespace, b.type, b.payload, b.details, b.id, b.attempt, b.created_at) end
$$;
