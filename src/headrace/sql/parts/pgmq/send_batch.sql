-- send for many messages: all of them are stored, or none. headers, if given, has one entry for
-- each message.
create or replace function pgmq.send_batch(
    queue_name text, msgs jsonb[], headers jsonb[], delay timestamptz
) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send_batch.queue_name, send_batch.msgs, send_batch.headers, send_batch.delay) $$;

create or replace function pgmq.send_batch(
    queue_name text, msgs jsonb[], headers jsonb[], delay integer
) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send_batch.queue_name, send_batch.msgs, send_batch.headers,
                               headrace._now() + make_interval(secs => send_batch.delay)) $$;

create or replace function pgmq.send_batch(queue_name text, msgs jsonb[]) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send_batch.queue_name, send_batch.msgs, null, null) $$;

create or replace function pgmq.send_batch(queue_name text, msgs jsonb[], headers jsonb[]) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send_batch.queue_name, send_batch.msgs, send_batch.headers, null) $$;

create or replace function pgmq.send_batch(queue_name text, msgs jsonb[], delay integer) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send_batch.queue_name, send_batch.msgs, null,
                               headrace._now() + make_interval(secs => send_batch.delay)) $$;

create or replace function pgmq.send_batch(queue_name text, msgs jsonb[], delay timestamptz) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send_batch.queue_name, send_batch.msgs, null, send_batch.delay) $$;
