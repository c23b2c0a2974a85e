-- Who runs, and what is published by the clock.

-- The nodes of a namespace, for people and for whoever wants to know which types are handled. Nothing is recovered by it: leases
-- tell who is dead. A row a node, rewritten in place by its heartbeat: no index holds what that changes.
create table headrace.nodes (
    namespace      int not null,
    node_id        text collate "C" not null,
    instance       uuid not null,           -- a process's start: who comes later under the same id takes the row over
    display_name   text,
    description    text,
    metadata       jsonb not null,
    handles        text[] not null,         -- types, with asterisks
    worker         text not null,           -- host:pid, as its claims have it
    registered_at  timestamptz not null,    -- this instance
    last_heartbeat timestamptz not null,
    stopped_at     timestamptz,             -- it said goodbye
    primary key (namespace, node_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- A task is an event that is published at certain instants. SQL knows no calendar: somebody who does works the instants out and
-- stores them ahead (see plan_task), and any tick fires those that have come. Whoever changes a task locks its row, so does
-- whoever fires it.
create table headrace.scheduled_tasks (
    task_id         uuid primary key,
    namespace       int not null,
    name            text collate "C" not null,
    cron_expression text not null,
    timezone        text not null,
    event_type      text not null,
    payload         jsonb not null,
    event           jsonb not null,             -- what else publish is told: tags, priority, …
    missed          text not null check (missed in ('coalesce', 'catch_up', 'skip')),
    active          boolean not null default true,
    version         int not null default 1,     -- of expression and time zone: instants worked out for another one are refused
    next_fires      timestamptz[] not null default '{}',
    planned_until   timestamptz not null,       -- the instants up to here are in next_fires, or over
    planned_at      timestamptz,                -- when that was worked out; null: never
    due_at          timestamptz,                -- when tick looks at it next; null: paused, or nothing to fire
    last_fire_at    timestamptz,                -- the last instant that was fired
    job_id          int,                        -- of pg_cron, where that fires it
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    unique (namespace, name)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index scheduled_tasks_due on headrace.scheduled_tasks (due_at) where due_at is not null;

-- What was fired: this key, in the transaction that publishes, is why there is one event for an instant, whatever clocks, copies
-- and failovers do to the rest. Kept for a month.
create table headrace.fires (
    task_id uuid not null,
    fire_at timestamptz not null,
    event   bigint not null,
    primary key (task_id, fire_at)
);
create index fires_fire_at on headrace.fires (fire_at);

-- When ticks left schedules due, because they were too many for one: a row in five seconds. Insert only. See busy_since.
create table headrace.busy_ticks (
    at timestamptz not null
);
create index busy_ticks_at on headrace.busy_ticks (at);
alter table headrace.busy_ticks replica identity full;

-- A task as `schedules` lists it.
create type headrace.listed_task as (
    task_id uuid, name text, cron_expression text, timezone text, event_type text, payload jsonb, event jsonb, missed text,
    active boolean, next_fires timestamptz[], last_fire_at timestamptz, created_at timestamptz, updated_at timestamptz,
    version int, planned_until timestamptz,
    at timestamptz      -- of the answer
);
