-- Makes a queue, or leaves an existing one as it is. core_events_<namespace> makes the namespace,
-- which has its dead letters from the start.
-- Raises QU001 for an invalid name, 42P01 for core_events_pgmq, which is not a queue.
create or replace function pgmq.create(queue_name text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if (pgmq._queue(queue_name, needed => false)).kind is not null then
        perform headrace._confirm_stored();
        return;
    elsif starts_with(queue_name, 'core_events_') then
        perform headrace.create_namespace(regexp_replace(substr(queue_name, 13), '_dlq$', ''));
        perform pgmq._queue(queue_name);
        return;
    end if;
    perform pgmq.validate_queue_name(queue_name);
    perform pgmq._home();
    perform headrace.create_queue('pgmq', lower(queue_name), array[lower(queue_name)],
                                  settings => jsonb_build_object('metadata', jsonb_build_object('name', queue_name)));
end $$;

-- As document 004 calls it.
create or replace function pgmq.create_queue(queue_name text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select pgmq.create(create_queue.queue_name) $$;

-- There is one way to store a message here: every queue is durable, and its months are partitions
-- already.
create or replace function pgmq.create_non_partitioned(queue_name text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select pgmq.create(create_non_partitioned.queue_name) $$;

create or replace function pgmq.create_unlogged(queue_name text) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select pgmq.create(create_unlogged.queue_name) $$;

create or replace function pgmq.create_partitioned(
    queue_name text, partition_interval text default '10000', retention_interval text default '100000',
    premake integer default 4
) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select pgmq.create(create_partitioned.queue_name) $$;
