-- The log: how attempts ended, what went wrong, and up to which number all of it is there.

-- One row per call, lease, action and bucket of 1,024 places (see _bucket): the rows of an event are
-- found by its bucket.
create table headrace.outcomes (
    id         bigint not null,
    at         timestamptz not null,
    picked_at  timestamptz,         -- of the claim that this ends; null: it ends none
    bucket     bigint not null,
    lease      bigint,
    namespace  int not null,
    queue      int not null,
    action     text not null,
    worker     text,                -- the claim's
    actor      text,                -- the role or person that did it, if not the worker: an administrator
    reason     text,                -- and why
    events     bigint[] not null,
    attempts   int[] not null,
    positions  smallint[],          -- in the lease, from 0; missing ones at the end go on counting from the first
    ms         int[],
    codes      int[],
    -- The token of the lease that an ABANDONED ended, so that a late finish can still be proved:
    -- see _take_late. Null in all other rows.
    token      uuid,
    primary key (id, at)
) partition by range (at);
-- Not compressed: that would take longer than all else of a finish, to save five bytes an event.
alter table headrace.outcomes alter column events set storage external;
create index outcomes_bucket on headrace.outcomes (bucket, queue);
-- Finds the outcomes that ended the claims of a stretch of the log; costs a finish nothing: see
-- log_since.
create index outcomes_lease on headrace.outcomes using brin (lease) with (autosummarize = on, pages_per_range = 16);

create table headrace.errors (
    outcome     bigint not null,    -- the row of outcomes that this belongs to
    event       bigint not null,
    at          timestamptz not null,
    queue       int not null,
    attempt     int not null,
    failures    smallint not null,  -- so far, this one included
    max_retries smallint not null,  -- by the policy that was applied
    retry_at    timestamptz,        -- null: this was the end
    error       text not null,
    primary key (event, queue, outcome, at)
) partition by range (at);

-- The net under the monthly partitions: see _make_partitions.
create table headrace.outcomes_default partition of headrace.outcomes default;
create table headrace.errors_default partition of headrace.errors default;

-- The horizon that all readers share: see the type horizon. _save_states keeps it up to date;
-- readers of the log have marks of their own. Each life of the database has a row, see
-- _database_life. The row of a life that is over stays: its `pending` was drawn before the end of
-- that life, and is never drawn again.
create table headrace.horizons (
    life    text primary key,
    final   bigint not null,
    pending bigint not null,
    awaited text[] not null
) with (fillfactor = 50);

-- Events that pgmq's functions sent and that core.append_event_log has not been told of yet. They
-- are in the log already, so the call that records one a second time finds it here. Written only
-- where both parts are installed, and kept for five minutes.
create table headrace.sent (
    namespace int not null,
    digest    bigint not null,          -- see _content_digest
    event     bigint not null,
    at        timestamptz not null,
    primary key (namespace, digest, event)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index sent_at on headrace.sent (at);
