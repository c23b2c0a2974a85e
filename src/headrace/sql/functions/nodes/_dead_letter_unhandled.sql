-- Dead-letters ready deliveries of these routes, all of one type, that were published by a time:
-- about `most` of each pair of priority and route, whole packs, and of each ordering key the
-- delivery whose turn it is. No attempt is charged. Returns the number of dead letters.
-- Concurrency: skips locked rows.
create or replace function headrace._dead_letter_unhandled(
    q headrace.queues, t timestamptz, type text, routes bigint[], until timestamptz, most int
) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    unhandled constant text := 'No handler for event ' || type;
    pair record;
    taken headrace.taken[] := '{}';
begin
    for pair in select p.* from headrace._ready_routes(q.id, 10000) p where p.route = any (routes) loop
        taken := taken || headrace._take_route(q, pair.suspect, pair.priority, pair.route, until, most)
                       || headrace._take_keys(q, pair.suspect, pair.priority, pair.route, until, least(most, 100));
        exit when cardinality(taken) >= most;
    end loop;
    if taken = '{}' then
        return 0;
    end if;
    t := headrace._now();
    insert into headrace.dead_letters (event, queue, namespace, created_at, died_at, status, reason,
                                       fingerprint, attempts,
        failures, crashes, route, priority, max_retries, type, tags, payload, details, key)
    select k.event, q.id, q.namespace, k.created_at, t, 'FAILED', why.reason, headrace._fingerprint(why.reason, null),
           k.attempt,
           k.failures, k.crashes, coalesce(b.route, 0), coalesce(b.priority, 5::smallint), b.max_retries,
           coalesce(b.type, _dead_letter_unhandled.type), b.tags, coalesce(b.payload, 'null'), b.details, k.key
    from unnest(taken) k
    left join lateral headrace._stored_event(k.event, k.created_at) b on true
    cross join lateral (select case when b.type is null then 'Its event is no longer stored'
                                    else unhandled end as reason) why;
    perform headrace._log_moves(q, t, 'FAILED', taken, 'headrace', unhandled);
    perform headrace._log_moves(q, t, 'DEAD_LETTERED', taken, 'headrace', unhandled);
    insert into headrace.counts (at, namespace, queue, dead) values (t, q.namespace, q.id, cardinality(taken));
    perform headrace._release_keys(q, t, taken);
    return cardinality(taken);
end $$;
