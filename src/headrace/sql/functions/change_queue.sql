-- Changes settings of a queue: those that are named; null brings a default back.
--     types, tags, all_tags   what it takes, as in create_queue: of what is published from now on (everything)
--     takes                   false switches it off: it gets nothing new (true)
--     max_retries, backoff    the retry policy of events that have none of their own (3; fixed, 300 seconds)
--     max_queue_depth         publish refuses events while as many wait in it (no limit)
--     high_watermark          publish tells of pressure while as many wait in it (none)
--     batch_size              a claim takes at most as many (as many as it asks for)
--     processing_interval     milliseconds between the polls of an idle node (1000)
--     persistence_threshold   the queue's state is saved as soon as as many wait in it (only from time to time)
--     require_lease_token     claims are ended, extended and given progress with the lease token that poll returned alone (false)
--     order                   fair: types and tags share, and of each the oldest comes first; oldest: the lowest priority and event of all
--                             that is ready, at a cost: see docs/queues.md (fair)
--     lease                   seconds that a claim lasts if it does not say so itself: 0.1 to 604800, a week (60)
--     metadata                whatever you like to keep with it, an object
-- maxQueueDepth, highWatermark, batchSize, processingInterval and persistenceThreshold, as the state document has them, may be given so, too.
-- actor: who did it, for the log: see log_action. The caller's role if nobody is named.
-- Concurrency: changes of a namespace's queues wait for each other; publishers wait for none of them.
-- Raises QU001 for what is no setting or no value for it, QU010, QU011.
create or replace function headrace.change_queue(namespace text, queue text, settings jsonb, actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    n headrace.namespaces := headrace.lock_namespace(change_queue.namespace);
begin
    perform headrace.set_queue(headrace.its_queue(change_queue.namespace, change_queue.queue), change_queue.settings);
    perform headrace.log_action(n.id, change_queue.actor, 'change_queue', change_queue.queue, change_queue.settings);
end $$;
