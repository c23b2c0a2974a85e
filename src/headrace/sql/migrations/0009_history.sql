-- How queues fared, for charts; and how events are found by what they have to do with others.

-- What happened, by five seconds: as stats by the minute, and folded together with them. Kept for an hour.
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

-- How deep a queue was and how long its deliveries waited and ran: looked at every five seconds and written down in steps of five lengths, so
-- that a chart of any of five ranges reads at most 180 rows. A queue in which nothing waits and nothing ended has no row: whether
-- anybody looked is in samplings.
create table headrace.history (
    queue      int not null,
    step       int not null,            -- seconds
    at         timestamptz not null,    -- where the step begins
    depth      bigint,                  -- the highest that was seen
    oldest_age float8,                  -- seconds, likewise
    waits      int[],                   -- how many attempts fell into which bucket: see latency_bucket
    runs       int[],
    primary key (queue, step, at)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create table headrace.samplings (
    step    int not null,
    at      timestamptz not null,
    reached bigint not null,            -- the outcomes up to this one were measured
    primary key (step, at)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- What needs somebody's attention: see attention.
create type headrace.finding as (
    code text, level text, namespace text, queue text, about jsonb, since timestamptz
);

-- Only those that say what they come from are in these, and those that do not cost the publisher nothing.
create index events_causation on headrace.events ((details ->> 'causation_id'), id) where details ->> 'causation_id' is not null;
create index events_correlation on headrace.events ((details ->> 'correlation_id'), id) where details ->> 'correlation_id' is not null;
