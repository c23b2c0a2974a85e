-- The rows that functions pass to each other and return. Some functions write them by position: a
-- new attribute comes last.

-- Claims

-- Where a caller's next claim may start, per pair of priority and route: see poll. next_at is
-- seconds, because hints travel as text and sessions write times in their own ways.
create type headrace.hint as (
    suspect boolean, priority smallint, route bigint, low bigint, next bigint, next_at float8
);

-- The rows that a claim took out of `ready`, column by column: see _claim_route.
create type headrace.haul as (
    first bigint,       -- the lowest number that it took out, even of a useless token; null: it took out nothing
    events bigint[], created timestamptz[], seqs bigint[], attempts int[], failures smallint[],
    keys text[],        -- of ordering; null: none has one
    newest timestamptz  -- the latest time at which any of it became ready: its next log entry is not earlier
);

-- The deliveries of a claim, column by column: see _claim.
create type headrace.lot as (
    lease bigint, held boolean, until timestamptz,
    max_retries smallint,           -- the queue's
    hints text, events bigint[], created timestamptz[], attempts int[], priorities smallint[], failures smallint[],
    crashes smallint[],
    is_plain boolean,               -- none was claimed before or has a key: told in the order of priority and id
    lease_token uuid,
    picked_at timestamptz,
    -- Without a lease: seconds until a rate lets the next delivery start; 0: one may start now, but
    -- not one more than the claim's `limited`; null: neither is known.
    look_in float8
);

-- That a route is in a group with a limit: see _limited_groups.
create type headrace.membership as (
    route bigint,
    n int,                          -- the number of the group, from 1
    scope text, name text, at_once int, rate int,
    per bigint,                     -- microseconds
    burst int
);

-- Where a claim takes deliveries next: see _turns.
create type headrace.turn as (
    part int,                       -- 1: of its own share; 2: of the rest of its group's share; 3: of all that is left
    place int,                      -- of its pair
    waiting_since timestamptz,      -- it takes only those that have waited since then; null: all
    groups_left int,                -- groups that share what is left, this one included; null: not its first pair
    pairs_left int,                 -- pairs of the group that share what is left of its share
    is_limited boolean,
    limits int[]                    -- the numbers of its groups with limits
);

-- A delivery that poll hands out.
create type headrace.claimed as (
    id bigint, attempt int, type text, tags text[], payload jsonb, details jsonb, priority smallint,
    retry_count smallint, crashes smallint, max_retries smallint, created_at timestamptz,
    lease bigint, held boolean, lease_expires_at timestamptz, hints text, lease_token uuid,
    processing_started_at timestamptz
);

-- The same for events that have everything in common but the arrays here: see poll_batch.
create type headrace.alike as (
    ids bigint[], payloads text, details text, type text, tags text[], attempt int, priority smallint,
    retry_count smallint, crashes smallint, max_retries smallint, created bytea, lease bigint, held boolean,
    lease_expires_at timestamptz, hints text, lease_token uuid, processing_started_at timestamptz,
    look_in float8          -- of a row without events: see lot
);

-- A delivery that poll_for hands out to one of several workers: as a row of alike.
create type headrace.claimed_for as (
    place int,              -- of the worker, from 1
    ids bigint[], payloads text, details text, type text, tags text[], attempt int, priority smallint,
    retry_count smallint, crashes smallint, max_retries smallint, created bytea, lease bigint, held boolean,
    lease_expires_at timestamptz, lease_token uuid, processing_started_at timestamptz, hints text, look_in float8
);

-- A worker's part of a claim for several: see _share_claim.
create type headrace.share as (place int, event bigint, lease bigint, token uuid);

-- Finishes

-- A delivery that a call has just taken out of a claim, on its way to another place: see finish.
create type headrace.taken as (
    item int, event bigint, attempt int, created_at timestamptz, failures smallint, crashes smallint,
    suspect boolean, lease bigint, "position" smallint, picked_at timestamptz, worker text, key text
);

-- The answer of finish.
create type headrace.verdict as (
    item int, verdict text, action text, at timestamptz, retry_at timestamptz, retry_count smallint,
    max_retries smallint
);

-- Publishes and imports

-- The fields that events of one batch have in common, all but the payload: see _publish_batch.
create type headrace.head as (
    n int, type text, tags text[], sorted text[], route bigint, priority smallint, max_retries smallint, details jsonb,
    due_at timestamptz, key text, idempotency_key text, queues int[], unique_key text,
    debounce text, settle interval, at_latest interval
);

-- An event of a file on its way into its places: see _import_events.
create type headrace.arrival as (
    old_id bigint, id bigint,
    is_stored boolean,      -- the event is here already
    was_here boolean,       -- and was delivered to the queue
    place text, created_at timestamptz, due_at timestamptz, type text, tags text[], route bigint, priority smallint,
    max_retries smallint, details jsonb, key text, payload jsonb, attempts int, failures smallint, crashes smallint,
    suspect boolean, holds_key boolean, item jsonb
);

-- Look-ups

-- A search for events, checked and made plain: see _checked_filter.
create type headrace.wanted as (
    statuses text[], routes bigint[], since timestamptz, until timestamptz, key text, orphaned_since timestamptz,
    unfiltered boolean      -- by nothing but the status
);

-- An event and where its delivery in a queue stands: the answer of event and events.
create type headrace.shown as (
    id bigint, type text, tags text[], payload jsonb, details jsonb, priority smallint, status text, attempts int,
    retry_count smallint, crashes smallint, max_retries smallint, next_retry_at timestamptz, worker_id text,
    processing_started_at timestamptz, lease_expires_at timestamptz, created_at timestamptz, updated_at timestamptz,
    key text,
    reason text,            -- why the delivery is dead; null: it is not
    snoozes int,            -- since it was delivered, redriven or run again
    superseded_by bigint    -- the event that took the place of the delivery; null: none
);

-- A dead letter as callers see it.
create type headrace.letter as (
    id bigint, type text, tags text[], payload jsonb, details jsonb, priority smallint, status text, reason text,
    error text, fingerprint text, attempts int, retry_count smallint, crashes smallint, max_retries smallint,
    created_at timestamptz, died_at timestamptz, key text
);

-- A task as `schedules` lists it.
create type headrace.listed_task as (
    task_id uuid, name text, cron_expression text, timezone text, event_type text, payload jsonb, event jsonb,
    missed text, active boolean, next_fires timestamptz[], last_fire_at timestamptz, created_at timestamptz,
    updated_at timestamptz, version int, planned_until timestamptz,
    at timestamptz,         -- of the answer
    far boolean             -- whether as many instants as possible are to be stored ahead: see _is_planned_far
);

-- Why a delivery is not running, or what became of it: see why.
create type headrace.reason as (
    code text, message text, since timestamptz, until timestamptz, about jsonb
);

-- A condition that needs attention: see attention.
create type headrace.finding as (
    code text, level text, namespace text, queue text, about jsonb, since timestamptz
);

-- The log and the state

-- Which numbers of headrace.ids can still appear: see _advance_horizon.
create type headrace.horizon as (
    final   bigint,     -- up to here, everything that will be committed is committed
    pending bigint,     -- and up to here, once these transactions are over:
    awaited text[]
);

-- Where a reader of the log or of the events is: see _resumed_reading.
create type headrace.reading as (
    life       text,        -- of this database
    start      bigint,      -- of this server
    drawn      bigint,      -- the last number, when the call began
    reached    bigint,      -- a number that was drawn before a commit; null: none is known yet
    after      bigint,      -- where a cursor may stand: it was told, or lies at or below such a number
    "position" bigint,      -- all up to here was told, as far as this server knows
    known      headrace.horizon,
    rewound_to bigint       -- where it went back to; null: nowhere
);

-- How far a queue has come, and why no further: see low_water.
create type headrace.low_water as (
    bound         bigint,       -- all up to this number is finished, and nothing up to it is still to come
    checkpoint    bigint,       -- the last event at or below it that this queue had; null: none
    processed     bigint,
    lag           bigint,       -- unfinished deliveries
    lag_is_exact  boolean,      -- false: there are more
    oldest_at     timestamptz,  -- when the oldest of them was published
    reason        text          -- null: it is at the end
);
