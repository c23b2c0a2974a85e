-- Claims up to max_events deliveries for the length of a lease and returns them, the most urgent
-- first; types share fairly, and of each the oldest comes first. Claimed means: committed to this
-- worker, the attempt counted, before any of its code runs.
--
-- lease: null for the queue's, see change_queue; a minute if the queue has none.
-- types: any may hold asterisks ("order.*"); tags: any of them, or all of them; null: everything.
-- each: every delivery is held on its own, for finishing inside a transaction of the worker's or
-- one by one. A suspect (see 0_essay) is returned alone, when its turn has come, to a worker that
-- has no other; suspects := false skips them. Sweeps find new suspects.
-- hints: the hints that the last call with the same filter returned, kept in the caller's memory.
-- They name the (priority, route) pairs that had work and how far each was drained some seconds
-- ago, so that a claim does not walk dead index entries while vacuum is held up. Hints may be lost.
-- They are blind to new pairs and to late commits: sweep := true looks at everything, as a call
-- without hints does (pass them along).
-- lease_token: proves the claim to finish, extend, save_progress … All deliveries of one claim have
-- the same token.
-- dispatch: collect, if the worker collects the errors of several handlers: a delivery that uses up
-- its attempts, or kills its workers, ends as COMPLETED_WITH_ERRORS, unless the failure names
-- another status; otherwise as FAILED.
-- limited: the most deliveries of groups with limits that it takes (see change_queue); null: as many
-- as it asks for. A worker that claims ahead of its handlers says here how many it can start now.
-- instance: the start of the node that claims, for a later start that takes its claims over: see
-- recover.
--
-- Concurrency: skips locked rows (and sleeps for some milliseconds if such a row is a pack which
-- another claim is opening, and there is nothing else); no two calls get the same delivery, none
-- gets more than it asked for. An empty sweep does the work of tick, so that a worker that only
-- polls is never stuck.
-- Raises QU001, QU010, QU011, and QU030 outside READ COMMITTED.
create or replace function headrace.poll(
    namespace text,
    queue text default 'main',
    types text[] default null,
    tags text[] default null,
    all_tags boolean default false,
    worker text default null,
    max_events int default 1,
    lease interval default null,
    "each" boolean default false,
    suspects boolean default true,
    hints text default null,
    sweep boolean default false,
    instance uuid default null,
    dispatch text default 'atomic',
    limited int default null
) returns setof headrace.claimed
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off     -- rows are found in the order of an index, never collected and sorted
set enable_sort = off
set enable_nestloop = off       -- the bodies are joined by a hash: a nested loop takes three times as long
set plan_cache_mode = force_generic_plan
as $$
declare
    lot headrace.lot := coalesce(
        case when max_events = 1 and hints is not null and not sweep then headrace._claim_one(
            namespace, queue, worker, lease, "each", suspects, hints, instance, dispatch) end,
        headrace._claim(
            namespace, queue, types, tags, all_tags, worker, max_events, lease, "each", suspects, hints, sweep,
            instance, dispatch, limited));
begin
    if lot.lease is not null then
        return query select * from headrace._claimed_events(lot);
    end if;
end $$;
