-- The nodes, the recovery from dead ones, and the events that the clock publishes.

-- The nodes of a namespace, for people and for the question which types are handled. Recovery does
-- not use it: leases and instances tell which node is dead. A row a node, rewritten in place by
-- its heartbeat: no index holds a column that the heartbeat changes.
create table headrace.nodes (
    namespace      int not null,
    node_id        text collate "C" not null,
    instance       uuid not null,           -- a process's start: a later one under the same id takes the row over
    display_name   text,
    description    text,
    metadata       jsonb not null,
    handles        text[] not null,         -- types, with asterisks
    worker         text not null,           -- host:pid, as its claims have it
    registered_at  timestamptz not null,    -- when the node was first registered
    last_heartbeat timestamptz not null,
    stopped_at     timestamptz,             -- the node said goodbye
    started_at     timestamptz not null,    -- when its current process started
    -- The name of the namespace, so that a table with the columns of core.nodes can have the nodes
    -- as its children: see core/2_nodes.sql.
    space          text collate "C" not null,
    primary key (namespace, node_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- The starts of nodes that have not said goodbye. Each holds a lock for as long as it is
-- connected. A new start under the id of one whose lock is free takes its claims over: see
-- recover.
create table headrace.instances (
    instance     uuid primary key,
    namespace    int not null,
    node_id      text collate "C" not null,
    -- The start of the server under which the instance was seen to have its lock; null: it has
    -- none, and is never taken for dead.
    locked_under timestamptz,
    at_once      int                        -- how many handlers it runs at once; null: nobody knows
);
create index instances_node on headrace.instances (namespace, node_id);

-- Claims that were taken over from dead starts of nodes: an entry for each start and queue.
create table headrace.recoveries (
    id               bigint generated always as identity primary key,
    namespace        int not null,
    queue            int not null,
    node_id          text not null,
    instance         uuid not null,         -- the dead one
    checkpoint_id    varchar(255),          -- of the queue, when the recovery began
    events_recovered bigint not null,
    recovery_start_time    timestamptz not null,
    recovery_complete_time timestamptz,     -- null: in progress
    unique (instance, queue)
);
create index recoveries_queue on headrace.recoveries (queue, id);

-- A task is an event that is published at certain instants. SQL knows no calendar: a client works
-- the instants out and stores them ahead (see plan_task), and any tick fires those that have come.
-- A call that changes a task locks its row, and so does the tick that fires it.
create table headrace.scheduled_tasks (
    task_id         uuid primary key,
    namespace       int not null,
    name            text collate "C" not null,
    cron_expression text not null,
    timezone        text not null,
    event_type      text not null,
    payload         jsonb not null,
    event           jsonb not null,             -- the other arguments of publish: tags, priority, …
    missed          text not null check (missed in ('coalesce', 'catch_up', 'skip')),
    active          boolean not null default true,
    version         int not null default 1,     -- of expression and time zone: instants of another version are refused
    next_fires      timestamptz[] not null default '{}',
    planned_until   timestamptz not null,       -- the instants up to here are in next_fires, or over
    planned_at      timestamptz,                -- when they were worked out; null: never
    due_at          timestamptz,                -- when tick looks at it next; null: paused, or nothing to fire
    last_fire_at    timestamptz,                -- the last instant that was fired
    job_id          int,                        -- of pg_cron, where that fires it
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    unique (namespace, name)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index scheduled_tasks_due on headrace.scheduled_tasks (due_at) where due_at is not null;

-- The instants that were fired. This key, in the transaction that publishes, is the reason why
-- there is one event for an instant, whatever clocks, copies and failovers do to the rest. Kept
-- for a month.
create table headrace.fires (
    task_id uuid not null,
    fire_at timestamptz not null,
    event   bigint not null,
    primary key (task_id, fire_at)
);
create index fires_fire_at on headrace.fires (fire_at);

-- When ticks left schedules due, because they were too many for one: a row in five seconds. Insert
-- only. See _schedules_busy_since.
create table headrace.busy_ticks (
    at timestamptz not null
);
create index busy_ticks_at on headrace.busy_ticks (at);
alter table headrace.busy_ticks replica identity full;
