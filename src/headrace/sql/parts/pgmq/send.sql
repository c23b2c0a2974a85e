-- Stores messages and returns their ids, in the order given. headers: an object that every reader
-- of the message gets.
-- delay: seconds, or the time before which the message is not visible. To core_events_<namespace>:
-- see _send. The rules, limits and errors of publish apply. Also raises 42P01.
create or replace function pgmq.send(queue_name text, msg jsonb, headers jsonb, delay timestamptz) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send.queue_name, array[send.msg], array[send.headers], send.delay) $$;

create or replace function pgmq.send(queue_name text, msg jsonb, headers jsonb, delay integer) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send.queue_name, array[send.msg], array[send.headers],
                               headrace._now() + make_interval(secs => send.delay)) $$;

create or replace function pgmq.send(queue_name text, msg jsonb) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send.queue_name, array[send.msg], null, null) $$;

create or replace function pgmq.send(queue_name text, msg jsonb, headers jsonb) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send.queue_name, array[send.msg], array[send.headers], null) $$;

create or replace function pgmq.send(queue_name text, msg jsonb, delay integer) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select *
    from pgmq._send(send.queue_name, array[send.msg], null, headrace._now() + make_interval(secs => send.delay)) $$;

create or replace function pgmq.send(queue_name text, msg jsonb, delay timestamptz) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq._send(send.queue_name, array[send.msg], null, send.delay) $$;
