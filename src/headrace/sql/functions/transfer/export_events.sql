-- The next events of a queue for its file, in the order of their ids, as an array: all unfinished
-- events, in every place, and its dead letters, each with its payload and its number of attempts.
-- after: only events above this id; last: for the next call, null: there are no more. Returns at
-- most `limit` events, and fewer if together they exceed the limit in bytes; at least one. places:
-- the number of events in each place. The page on moving a queue describes the form of an event.
-- Claimed events are exported as in_progress, and are ready where they are imported.
-- Concurrency: never waits. Raises QU001, QU010, QU011, QU030 for a second part in READ COMMITTED,
-- where each call sees another moment.
create or replace function headrace.export_events(
    namespace text, queue text default 'main', after bigint default 0, "limit" int default 1000,
    bytes int default 4194304, out events json, out size int, out last bigint, out places jsonb
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    q constant headrace.queues := headrace._queue_named(export_events.namespace, export_events.queue);
    wanted constant headrace.wanted :=
        headrace._checked_filter(q, '{PENDING,PROCESSING,FAILED,COMPLETED_WITH_ERRORS}', null, null, null, null, null,
                                 null, null, null);
    position bigint := export_events.after;
    ids bigint[];
    item record;
    items text[] := '{}';
    length bigint := 0;
    counted jsonb := '{}';
begin
    if export_events.after > 0 and current_setting('transaction_isolation') = 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'an export needs REPEATABLE READ: all of it is of one moment';
    elsif export_events.after is null or "limit" is null or "limit" not between 1 and 10000 or bytes is null then
        raise exception using errcode = 'QU001',
            message = 'export_events tells of 1 to 10000 events after an id, or after 0: from the first on';
    end if;
    loop
        ids := array(
            select distinct c from headrace._matching_events(q, wanted, position, 9223372036854775807, false, "limit") c
            order by c limit "limit");
        exit when ids = '{}';
        for item in select e.id, e.place, e.document::text as line from headrace._exported_events(q, ids) e
        order by e.id loop
            exit when items <> '{}' and length + octet_length(item.line) > bytes;
            items := items || item.line;
            length := length + octet_length(item.line);
            position := item.id;
            counted := counted || jsonb_build_object(item.place, coalesce((counted ->> item.place)::int, 0) + 1);
        end loop;
        exit when items <> '{}';
        position := ids[cardinality(ids)];  -- their events are no longer stored
    end loop;
    events := '[' || array_to_string(items, ',') || ']';
    size := cardinality(items);
    last := case when size > 0 then position end;
    places := counted;
end $$;
