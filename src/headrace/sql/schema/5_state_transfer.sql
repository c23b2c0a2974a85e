-- The saved states of queues and how far each has come; queues that leave and enter as files.

-- The state of each queue when it was last saved: see save_state. A snapshot for people, programs
-- and other systems, never the authority: a delivery stands in the place that holds it. Payloads
-- are not copied; headrace.state adds them for its reader.
create table headrace.event_queue_state (
    id            varchar(255) constraint event_queue_state_id_idx primary key, -- namespace/queue: neither has a slash
    events        jsonb not null,       -- the oldest unfinished ones, 1,000 at most
    checkpoint_id varchar(255),         -- null: nothing has been finished
    queue_metrics jsonb not null,
    config        jsonb not null,
    status        varchar(50) not null,
    created_at    timestamptz not null,
    updated_at    timestamptz not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index event_queue_state_status_idx on headrace.event_queue_state (status);

-- How far each queue had come, and when. A checkpoint is a low-water mark: see low_water. Insert
-- only; upkeep thins old ones out.
create table headrace.queue_checkpoints (
    id            uuid primary key,
    queue_id      varchar(255) not null references headrace.event_queue_state on delete cascade,
    checkpoint_id varchar(255),
    event_count   bigint not null,      -- an int is too small for a queue that never stops
    created_at    timestamptz not null
);
create index queue_checkpoints_queue_id_idx on headrace.queue_checkpoints (queue_id);
create index queue_checkpoints_created_at_idx on headrace.queue_checkpoints (created_at);

-- Readers may select from these two tables. A bound role sees its own queues, by its rows in
-- bound_roles.
alter table headrace.event_queue_state enable row level security;
create policy own on headrace.event_queue_state for select
using (not exists (select from headrace.bound_roles)
       or exists (select from headrace.bound_roles b where split_part(id, '/', 1) = any (b.namespaces)));
alter table headrace.queue_checkpoints enable row level security;
create policy own on headrace.queue_checkpoints for select
using (not exists (select from headrace.bound_roles)
       or exists (select from headrace.bound_roles b where split_part(queue_id, '/', 1) = any (b.namespaces)));

-- _save_states saves only changed states, and compares with these rows.
create table headrace.saved_states (
    queue   int primary key,
    seen    text not null,              -- what the queue was like, in short
    is_deep boolean not null,           -- it had reached its persistence_threshold
    next_at timestamptz not null        -- not before
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- A queue leaves a database as a file and enters another: see export_queue and import_state.

-- Which database this is, for the files that leave it. A copy of the database has the same id: see
-- imported.
create table headrace.identity (
    the_only_one boolean primary key default true check (the_only_one),
    id           uuid not null default gen_random_uuid()
);
insert into headrace.identity default values;

-- The imports that were made, a row a file.
create table headrace.imports (
    id          uuid primary key,
    at          timestamptz not null,
    queue       int not null,
    origin      uuid not null,          -- the database that the file comes from
    exported_at timestamptz not null,
    kept_ids    boolean not null,
    events      bigint not null,        -- in the file
    delivered   bigint not null         -- the others were there before
);

-- An import in progress. A transaction cannot commit with a row here: the commit checks the
-- foreign key, and _end_import, which adds the row that the key asks for, removes this one. So a
-- file is imported whole or not at all, whatever the caller does.
create table headrace.open_imports (
    id          uuid primary key
        constraint "the last call of an import has the total" references headrace.imports deferrable initially deferred,
    queue       int not null,
    is_new      boolean not null,       -- this import made the queue
    origin      uuid not null,
    exported_at timestamptz not null,
    kept_ids    boolean not null,
    last_id     bigint not null,        -- no event of the file has a higher number
    actor       text,
    events      bigint not null default 0,
    stored      bigint not null default 0,
    ready       bigint not null default 0,
    delayed     bigint not null default 0,
    dead        bigint not null default 0,
    highest     bigint,                 -- of the numbers that its events have here
    oldest_at   timestamptz             -- when the oldest of them was published
);

-- Which event of another database is which here, and which queues it was imported to: so that a
-- second import changes nothing. The key of an event is its database, its number there and its
-- time of publish: two copies of a database go on with the same identity and the same numbers, but
-- not in the same microsecond.
create table headrace.imported (
    origin     uuid not null,
    event      bigint not null,         -- its number there
    namespace  int not null,            -- here
    queue      int not null,
    created_at timestamptz not null,
    id         bigint not null,         -- its number here
    primary key (origin, event, namespace, queue, created_at)
);
