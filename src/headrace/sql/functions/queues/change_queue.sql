-- Changes the given settings of a queue; null restores a setting's default.
--     types, tags, all_tags   the events that it takes, as in create_queue, of those published from
--                             now on (everything)
--     takes                   false switches it off: it gets nothing new (true)
--     max_retries, backoff    the retry policy of events that have none of their own (3; fixed, 300
--                             seconds)
--     max_queue_depth         the queue depth from which publish refuses events (no limit)
--     high_watermark          the queue depth from which publish reports pressure (none)
--     batch_size              the most deliveries a claim takes (as many as it asks for)
--     processing_interval     poll interval of an idle node, in milliseconds (1000)
--     persistence_threshold   the queue depth at which the queue's state is saved at once (only
--                             from time to time)
--     require_lease_token     only the lease token that poll returned ends a claim, extends it or
--                             saves its progress (false)
--     order                   fair: types and tags share, and of each the oldest comes first;
--                             oldest: the lowest priority and event of all ready deliveries, at a
--                             cost: see docs/queues.md (fair)
--     lease                   seconds that a claim lasts if it does not set its own: 0.1 to 604800,
--                             a week (60)
--     limits                  a list of limits of what is in progress and of what starts (none):
--         scope                   queue: all deliveries are a group. type, tag: those with a type or
--                                 tag. key: each ordering key is one
--         match                   a tag, or a type that may hold asterisks: one group
--         prefix                  of tags or types: each value that begins with it is a group of
--                                 its own, unless another limit of the scope matches it
--         at_once                 the most deliveries of a group that are in progress
--         rate, per, burst        so many starts of a group in so many seconds, evenly; burst: so
--                                 many more may come at once (0). In any `per` seconds rate + burst
--                             A delivery starts when each of its groups has room. Until then it
--                             waits, uncharged and in its order, and others pass it by
--     fair_by                 {"tag": "tenant:"}: the values of such tags take turns, and then the
--                             types and tags of each value; events without such a tag are one
--                             value (types and tags take turns)
--     aging                   seconds: a delivery rises a priority each time that it has waited for
--                             so long (never)
--     max_snoozes             the snoozes of a delivery after which a further one is a failure (no
--                             limit)
--     metadata                any object, stored with the queue
-- The names of the state document are accepted too: maxQueueDepth, highWatermark, batchSize,
-- processingInterval and persistenceThreshold.
-- actor: the name in the log (see _log_action); default: the caller's role.
-- Changed limits count at once: for each claim that begins after the change has been committed. Lower
-- ones interrupt nothing.
-- Concurrency: changes of a namespace's queues wait for each other; publishers never wait for them.
-- Raises QU001 for an unknown setting or an invalid value, QU010, QU011.
create or replace function headrace.change_queue(
    namespace text, queue text, settings jsonb, actor text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    n headrace.namespaces := headrace._lock_namespace(change_queue.namespace);
begin
    perform headrace._store_queue_settings(headrace._queue_named(change_queue.namespace, change_queue.queue),
                                           change_queue.settings);
    perform headrace._log_action(n.id, change_queue.actor, 'change_queue', change_queue.queue, change_queue.settings);
end $$;
