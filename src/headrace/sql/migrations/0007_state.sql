-- What a queue's state was, how far it has come, and what was taken over from the dead.

-- The state of each queue, as it was when it was last saved: see save_state. A snapshot for people, programs and other systems, never the
-- authority: where a delivery stands is the place it is in. Payloads are not copied; whoever reads a state by headrace.state gets them.
create table headrace.event_queue_state (
    id            varchar(255) constraint event_queue_state_id_idx primary key,     -- namespace/queue: neither has a slash in its name
    events        jsonb not null,       -- the oldest unfinished ones, 1,000 at most
    checkpoint_id varchar(255),         -- null: nothing has been finished
    queue_metrics jsonb not null,
    config        jsonb not null,
    status        varchar(50) not null,
    created_at    timestamptz not null,
    updated_at    timestamptz not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index event_queue_state_status_idx on headrace.event_queue_state (status);

-- How far each queue had come, and when. A checkpoint is a low-water mark: see low_water. Insert only; upkeep thins out what is old.
create table headrace.queue_checkpoints (
    id            uuid primary key,
    queue_id      varchar(255) not null references headrace.event_queue_state on delete cascade,
    checkpoint_id varchar(255),
    event_count   bigint not null,      -- of a queue that never stops, no int
    created_at    timestamptz not null
);
create index queue_checkpoints_queue_id_idx on headrace.queue_checkpoints (queue_id);
create index queue_checkpoints_created_at_idx on headrace.queue_checkpoints (created_at);

-- What save_states must know to save only what has changed.
create table headrace.saved_states (
    queue   int primary key,
    seen    text not null,              -- what the queue was like, in short
    is_deep boolean not null,           -- it had reached its persistence_threshold
    next_at timestamptz not null        -- not before
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

alter table headrace.queues add column persistence_threshold int;   -- its state is saved when as many wait; null: only from time to time
alter type headrace.listed_queue add attribute persistence_threshold int;

-- Which numbers of headrace.ids can still appear: see advance.
create type headrace.horizon as (
    final   bigint,     -- up to here, what was to be committed is committed
    pending bigint,     -- and up to here, once these are over:
    awaited text[]
);
-- The one that everybody shares, kept up by save_states; readers of the log have marks of their own. Each life of the database has a
-- row, see life; that of a life that is over stays: its `pending` was drawn before the end of that life, and is never drawn again.
create table headrace.horizons (
    life    text primary key,
    final   bigint not null,
    pending bigint not null,
    awaited text[] not null
) with (fillfactor = 50);

-- Where a reader of the log or of the events is: see resumed.
create type headrace.reading as (
    life       text,        -- of this database
    start      bigint,      -- of this server
    drawn      bigint,      -- the last number, when the call began
    reached    bigint,      -- a number that was drawn before a commit; null: none is known yet
    after      bigint,      -- where a cursor may stand: what was told, or lies at or below such a number
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

-- Whose claim it is: a start of a node; null: of somebody who is not a node.
alter table headrace.leases add column instance uuid;

-- The starts of nodes that have not said goodbye. Each holds a lock for as long as it is connected; whoever starts under the id of one
-- whose lock is free takes its claims over: see recover.
create table headrace.instances (
    instance     uuid primary key,
    namespace    int not null,
    node_id      text collate "C" not null,
    locked_under timestamptz    -- the start of the server under which it was seen to have its lock; null: it has none, and is never taken for dead
);
create index instances_node on headrace.instances (namespace, node_id);

-- What was taken over from dead starts of nodes: an entry for each of them and queue.
create table headrace.recoveries (
    id               bigint generated always as identity primary key,
    namespace        int not null,
    queue            int not null,
    node_id          text not null,
    instance         uuid not null,         -- the dead one
    checkpoint_id    varchar(255),          -- of the queue, when it began
    events_recovered bigint not null,
    recovery_start_time    timestamptz not null,
    recovery_complete_time timestamptz,     -- null: it is going on
    unique (instance, queue)
);
create index recoveries_queue on headrace.recoveries (queue, id);
