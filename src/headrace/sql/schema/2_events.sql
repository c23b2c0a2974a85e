-- The number line, the events on it, and the keys that make a publish repeatable.

create sequence headrace.ids;

-- Which shard this database is, see Shards in 0_essay: the numbers that it draws leave `number` when
-- they are divided by `stride`. The numbers up to `mark` were drawn before it was a shard: they
-- belong to it, whatever they leave. _become_shard writes the only row.
create table headrace.shard (
    the_only_one boolean primary key default true check (the_only_one),
    stride int not null check (stride > 0) check (stride <= 1024) check (stride & (stride - 1) = 0),
    number int not null check (number >= 0),
    mark   bigint not null,
    check (number < stride)
);

-- Which number had been drawn when, a row a day: a look-up by number searches only the months that
-- the number can be in. See _earliest_time_of.
create table headrace.marks (
    id bigint primary key,
    at timestamptz not null
);

create table headrace.events (
    id          bigint not null,
    created_at  timestamptz not null,
    route       bigint not null,
    namespace   int not null,
    version     int not null,       -- of the namespace's queues, when it was published: see bindings
    priority    smallint not null,
    max_retries smallint,           -- null: the queue's
    type        text not null,
    tags        text[],             -- in the order given; null: none
    payload     jsonb not null,
    details     jsonb,              -- title, description, version, source, correlation ids …, backoff
    key         text                -- of ordering; null: none
) partition by range (created_at);
-- The table as a whole has no key: it would have to hold created_at, and let an id pass a second
-- time at another time. Each partition has a key of its own, see _make_partition; older numbers are
-- under the floor of their namespace.

-- The net under the monthly partitions: see _make_partitions.
create table headrace.events_default partition of headrace.events default;
alter table headrace.events_default add primary key (id);

-- How events are found by the events that they come from. Only events that name one are in these
-- indexes; the others cost the publisher nothing.
create index events_causation on headrace.events ((details ->> 'causation_id'), id)
where details ->> 'causation_id' is not null;
create index events_correlation on headrace.events ((details ->> 'correlation_id'), id)
where details ->> 'correlation_id' is not null;

-- Bodies of live events whose month has been dropped.
create table headrace.events_carried (like headrace.events, primary key (id));

-- Which shard stores the events with which keys. A key, of ordering or else of idempotency, belongs
-- to one of 1,024 slots by its digest, and each slot has one home. A row is what this shard knows of
-- a slot; without rows shard 0 is the home of all. See give_slots, which begins a move.
create table headrace.slots (
    slot      int primary key check (slot between 0 and 1023),
    home      int not null,     -- the shard that stores its events
    version   int not null,     -- how often it has moved: where two shards differ, the higher one is right
    -- The home before this one. It still has deliveries of the slot, and until they have ended this
    -- shard hands out none: every new delivery finds its key in `active`, for the event 0. Null: this
    -- shard hands them out.
    origin    int,
    asked     int[] not null default '{}',  -- earlier homes, which may know an idempotency key of it, ...
    ask_until timestamptz                   -- ... until then: a publisher has to ask them first
);

-- The events that were published under an idempotency key, so that a publisher that is not sure
-- may publish again: kept for a week.
create table headrace.idempotency (
    namespace  int not null,
    key        text not null,
    event      bigint not null,
    created_at timestamptz not null,    -- of the event
    digest     bytea not null,          -- of its type, tags, ordering key and payload
    primary key (namespace, key)
);
create index idempotency_created_at on headrace.idempotency (created_at);
