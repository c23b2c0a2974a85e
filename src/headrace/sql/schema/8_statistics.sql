-- Counts, totals and the history behind the charts.

-- Each call appends to `counts`; tick folds the rows into one per queue and minute.
create table headrace.counts (
    at        timestamptz not null,
    namespace int not null,
    queue     int not null,
    published int not null default 0,
    completed int not null default 0,
    failed    int not null default 0,
    abandoned int not null default 0,
    dead      int not null default 0,
    attempts  int not null default 0,       -- that ended
    timed     int not null default 0,       -- of these, attempts that reported their run time
    ms        bigint not null default 0,    -- the sum of these run times
    retried   int not null default 0        -- failed or abandoned attempts that another one follows, or will follow
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
alter table headrace.counts replica identity full;
-- A fold finds the new rows by it even when vacuum is held up and the folded ones still lie there.
create index counts_at on headrace.counts (at);

create table headrace.stats (
    minute    timestamptz not null,
    namespace int not null,
    queue     int not null,
    published bigint not null,
    completed bigint not null,
    failed    bigint not null,
    abandoned bigint not null,
    dead      bigint not null,
    attempts  bigint not null,
    timed     bigint not null,
    ms        bigint not null,
    retried   bigint not null default 0,
    primary key (queue, minute)
);

-- The sum of all that stats ever counted: those rows are forgotten after a month, and a reader of
-- counters expects them to grow.
create table headrace.totals (
    queue     int primary key,
    published bigint not null,
    completed bigint not null,
    failed    bigint not null,
    retried   bigint not null,
    abandoned bigint not null,
    dead      bigint not null,
    attempts  bigint not null,
    timed     bigint not null,
    ms        bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- Counts by five seconds: as stats by the minute, and folded together with them. Kept for an hour.
create table headrace.moments (
    queue     int not null,
    at        timestamptz not null,     -- where the five seconds begin
    published bigint not null,
    completed bigint not null,
    failed    bigint not null,          -- or abandoned
    retried   bigint not null,
    dead      bigint not null,
    primary key (queue, at)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- How deep a queue was and how long its deliveries waited and ran: measured every five seconds and
-- written down in steps of five lengths, so that a chart of any of five ranges reads at most 180
-- rows. A queue in which nothing waits and nothing ended has no row: samplings tells whether it
-- was measured.
create table headrace.history (
    queue      int not null,
    step       int not null,            -- seconds
    at         timestamptz not null,    -- where the step begins
    depth      bigint,                  -- the highest that was seen
    oldest_age float8,                  -- seconds, likewise
    waits      int[],                   -- how many attempts fell into which bucket: see _latency_bucket
    runs       int[],
    primary key (queue, step, at)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create table headrace.samplings (
    step    int not null,
    at      timestamptz not null,
    reached bigint not null,            -- the outcomes up to this one were measured
    -- Of the samples every five seconds:
    took    float8,                     -- seconds of a look at all queues; null: not known
    done    int,                        -- the queues up to this one were looked at; null: all
    looked_at timestamptz,              -- when the last of them were
    primary key (step, at)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
