-- The same as delete: an event stays readable after its end, with its log, until retention drops
-- it, so nothing is moved to keep it.
create or replace function pgmq.archive(queue_name text, msg_id bigint) returns boolean
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select pgmq.delete(archive.queue_name, archive.msg_id) $$;

create or replace function pgmq.archive(queue_name text, msg_ids bigint[]) returns setof bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq.delete(archive.queue_name, archive.msg_ids) $$;
