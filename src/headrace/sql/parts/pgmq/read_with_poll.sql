-- read, again and again until there is something or max_poll_seconds are over. As with pgmq itself,
-- the statement stays open all the while, and with it its snapshot: a loop in the client that asks
-- once a second is kinder to vacuum.
create or replace function pgmq.read_with_poll(
    queue_name text, vt integer, qty integer, max_poll_seconds integer default 5, poll_interval_ms integer default 100,
    conditional jsonb default '{}'
) returns setof pgmq.message_record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    stop_at constant timestamptz := clock_timestamp() + make_interval(secs => max_poll_seconds);
begin
    loop
        return query select * from pgmq.read(read_with_poll.queue_name, read_with_poll.vt, read_with_poll.qty,
                                             read_with_poll.conditional);
        exit when found or clock_timestamp() >= stop_at;
        perform pg_sleep(poll_interval_ms / 1000.0);
    end loop;
end $$;
