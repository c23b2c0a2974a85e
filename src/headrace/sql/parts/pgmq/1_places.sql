-- PGMQ'S FUNCTIONS ON HEADRACE'S PLACES
--
-- The functions that clients of pgmq 1.x call, with its names, arguments and result columns, and
-- none of its tables. The words:
--
--     queue         a queue of the namespace `pgmq`, which takes the events of one type: its name,
--                   in lower case. core_events_<namespace> is a namespace's `main`,
--                   core_events_<namespace>_dlq its dead letters.
--     message       an event; msg_id is its id, enqueued_at its created_at, message its payload. Of
--                   a namespace's `main`: the envelope.
--     read          a claim: read_ct counts attempts. Each message has a lease of its own, a
--                   lenient one, so that it is seen again when its visibility timeout is over,
--                   uncharged, however often.
--     vt            the end of that lease, or, of a waiting message, the time before which it is
--                   not claimed.
--     delete,       the message is done: the call counts as its current holder's, because pgmq's
--     archive       callers name no attempt. A message without a holder is cancelled. Both leave
--                   the event where it is until retention drops it.
--
-- A function whose name begins with an underscore is not for callers.
do $$
begin
    if to_regtype('pgmq.message_record') is null then
        create type pgmq.message_record as (
            msg_id bigint, read_ct integer, enqueued_at timestamptz, last_read_at timestamptz, vt timestamptz,
            message jsonb, headers jsonb);
        create type pgmq.queue_record as (
            queue_name varchar, is_partitioned boolean, is_unlogged boolean, created_at timestamptz);
        create type pgmq.metrics_result as (
            queue_name text, queue_length bigint, newest_msg_age_sec int, oldest_msg_age_sec int, total_messages bigint,
            scrape_time timestamptz, queue_visible_length bigint, default_partition_length bigint);
    end if;
end $$;

-- Dead letters are not claimed; a dead letter that was read or sent here has a row, which hides it
-- until vt. The row is deleted with its letter.
create table if not exists pgmq._letters_read (
    queue        int not null,
    event        bigint not null,
    read_ct      int not null,
    last_read_at timestamptz,
    vt           timestamptz not null,
    failed_at    text,              -- as the consumer that sent it wrote it; null: it died here
    primary key (queue, event),
    foreign key (queue, event) references headrace.dead_letters (queue, event) on delete cascade
);
