-- Namespaces, the roles that are bound to them, their queues, and which queues take which events.

create table headrace.namespaces (
    id         int generated always as identity primary key,
    name       text collate "C" unique,         -- null: deleted
    version    int not null default 1,          -- of its queues: grows whenever a change alters what they take
    guarded    boolean not null default false,  -- a queue of it has a limit or is draining: publish must look
    -- Numbers up to here were drawn: publish stores nothing under them. See ids_behind.
    floor      bigint not null default 0,
    unhandled  text not null default 'keep' check (unhandled in ('keep', 'dead_letter')),
    metadata   jsonb not null default '{}',
    created_at timestamptz not null,
    deleted_at timestamptz,                     -- null: not deleted
    -- How long a type must have been unhandled before its events are dead-lettered.
    unhandled_after interval not null default '5 minutes',
    -- Whether any role is bound at all, the same in every row: a call that reads this row anyway
    -- looks no further if none is. See bound_roles.
    bound      boolean not null default false,
    -- Whether some keys have their home on another shard, the same in every row, for the same reason:
    -- see slots.
    sharded    boolean not null default false
);
-- Two namespaces must not share the queue name that headrace.queue_name_for_namespace gives them.
create unique index namespaces_queue_name on headrace.namespaces (replace(name, '-', '_'));

-- Roles that work in some namespaces only: see bind_role. The type regrole follows a role that is
-- renamed, and is a name in a dump.
create table headrace.bound_roles (
    role       regrole primary key,
    namespaces text[] not null,
    bound_at   timestamptz not null,
    bound_by   text not null
);
-- Readers may select from this table. Each sees its own bindings.
alter table headrace.bound_roles enable row level security;
create policy own on headrace.bound_roles for select
using (pg_has_role(current_user, role, 'USAGE') or pg_has_role(session_user, role, 'MEMBER'));

create table headrace.queues (
    id          int generated always as identity primary key,
    namespace   int not null references headrace.namespaces,
    name        text collate "C" not null,
    space       text collate "C",               -- its namespace's name, so that a call needs one look-up; null: deleted
    version     int not null default 1,         -- the namespace's when it began: it takes events from this version on
    takes       boolean not null default true,  -- false: switched off, it gets nothing new
    types       text[],                         -- the types that it takes, with asterisks; null: every type
    tags        text[],                         -- null: whatever the tags
    all_tags    boolean not null default false, -- all of the tags, not any
    state       text not null default 'active' check (state in ('active', 'paused', 'draining')),
    max_retries smallint not null default 3,
    backoff     jsonb not null default '{"kind": "fixed", "delay": 300}',
    max_queue_depth      int,                       -- publish refuses from this depth on; null: never
    high_watermark       int,                       -- publish reports pressure from this depth on; null: never
    batch_size           int,                       -- the most that a claim takes; null: as many as it asks for
    processing_interval  int not null default 1000, -- the poll interval of an idle node, in milliseconds
    metadata    jsonb not null default '{}',
    created_at  timestamptz not null,
    deleted_at  timestamptz,                        -- null: not deleted
    persistence_threshold int,                      -- its state is saved from this depth on; null: only at intervals
    bound       boolean not null default false,     -- as in namespaces
    -- Whether a claim is finished, extended and given progress with its lease token only.
    require_lease_token boolean not null default false,
    -- The order of claims. fair: types and tags take turns. oldest: the lowest priority and id of
    -- all.
    "order"     text not null default 'fair' check ("order" in ('fair', 'oldest')),
    lease       interval,                           -- of a claim that does not say how long; null: a minute. See _claim
    limits      jsonb                               -- of groups of deliveries, see change_queue; null: none
        check (jsonb_typeof(limits) = 'array'),
    fair_by     jsonb                               -- whose values take turns first, see change_queue; null: routes do
        check (jsonb_typeof(fair_by -> 'tag') = 'string' and fair_by - 'tag' = '{}'),
    aging       interval,                           -- after which a waiting delivery rises a priority; null: never
    max_snoozes int,                                -- a snooze after so many is a failure; null: no limit
    unique (space, name)
);
create index queues_namespace on headrace.queues (namespace);

-- A queue as `queues` lists it. Beside the table, so that a new setting is in one file.
create type headrace.listed_queue as (
    name text, state text, takes boolean, types text[], tags text[], all_tags boolean, depth bigint, filling text,
    max_retries smallint, backoff jsonb, max_queue_depth int, high_watermark int, batch_size int,
    processing_interval int, metadata jsonb, created_at timestamptz, persistence_threshold int,
    require_lease_token boolean, "order" text,
    lease float8,           -- seconds
    limits jsonb, fair_by jsonb,
    aging float8,           -- seconds
    max_snoozes int
);

-- Work that tick still has to do for a queue: fill a queue that began in the past with the events
-- before it, or clear a deleted queue of the deliveries that are still published into it. Both can
-- be finished only when the transactions are over that were open when the queue was made or
-- deleted, because those do not know of it: see _tick_chores.
create table headrace.chores (
    queue     int primary key,
    task      text not null check (task in ('fill', 'clear')),
    made_by   xid8 not null,            -- only compared with the caller's own: a copy of the database may have it, too
    actor     text,                     -- the role or person that deleted the queue
    waits_for text[],                   -- transactions that are not over; null: not looked for yet
    since     timestamptz,              -- events from this time on, ...
    done      bigint,                   -- ... above this one, the last that was looked at, ...
    last      bigint                    -- ... up to this one; null: not known before all transactions are over
);

-- Recent depths of the queues that have a limit: see _check_capacity. Insert only, the newest row
-- counts: an updated row would make publishers wait for each other, and under a held snapshot its
-- versions would pile up in front of it.
create table headrace.depths (
    queue int not null,
    at    timestamptz not null,
    depth bigint not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create index depths_queue on headrace.depths (queue, at);
alter table headrace.depths replica identity full;

-- A route is a digest of (type, sorted tags): the thing that a consumer's filter selects. Not
-- unique on purpose: so no publisher waits for another one's uncommitted first event, and a
-- duplicate does no harm.
create table headrace.routes (
    namespace  int not null,
    route      bigint not null,
    type       text collate "C" not null,
    tags       text[] not null,
    created_at timestamptz not null
);
create index routes_route on headrace.routes (route, namespace);
create index routes_type on headrace.routes (namespace, type);
alter table headrace.routes replica identity full;

-- The queues that take a route, worked out once for a version of the namespace's queues: a cache
-- that is never wrong, because every change of what queues take makes a new version. Insert only,
-- and not unique, for the same reasons.
create table headrace.bindings (
    namespace  int not null,
    version    int not null,
    route      bigint not null,
    queues     int[] not null,
    type       text,                -- of the route, if the route has no tags: see publish_one
    created_at timestamptz not null
);
create index bindings_route on headrace.bindings (route, namespace, version);
alter table headrace.bindings replica identity full;

-- Types that wait in a queue though no node handles them, in namespaces that dead-letter such
-- events. tick looks; `since` is the first of an unbroken row of looks that found the type
-- unhandled. A few minutes without a look break the row: after an outage the first tick may well
-- come before the first node.
create table headrace.unhandled (
    queue   int not null,
    type    text collate "C" not null,
    since   timestamptz not null,
    seen_at timestamptz not null,
    primary key (queue, type)
);
