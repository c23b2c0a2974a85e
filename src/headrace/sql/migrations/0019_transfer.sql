-- A queue leaves a database as a file and comes into another: see export_queue and import_state.

-- Which database this is, for the files that leave it. A copy of the database has the same one: see imported.
create table headrace.identity (
    the_only_one boolean primary key default true check (the_only_one),
    id           uuid not null default gen_random_uuid()
);
insert into headrace.identity default values;

-- What was imported, a row a file.
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

-- An import that is under way. A transaction cannot commit with a row here: the foreign key is looked at when it commits, and
-- end_import, which adds the row that it asks for, removes this one. So a file is imported whole or not at all, whoever calls.
create table headrace.open_imports (
    id          uuid primary key constraint "the last call of an import has the total" references headrace.imports deferrable initially deferred,
    queue       int not null,
    is_new      boolean not null,       -- the queue: it was made by this import
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

-- Which event of another database is which here, and which queues it was imported to: so that a second import changes nothing.
-- An event is known by the database, its number there and when it was published: two copies of a database go on with the same
-- identity and the same numbers, but not in the same microsecond.
create table headrace.imported (
    origin     uuid not null,
    event      bigint not null,         -- its number there
    namespace  int not null,            -- here
    queue      int not null,
    created_at timestamptz not null,
    id         bigint not null,         -- its number here
    primary key (origin, event, namespace, queue, created_at)
);

-- An event of a file on its way into its places: see import_events.
create type headrace.arrival as (
    old_id bigint, id bigint,
    is_stored boolean,      -- the event is here already
    was_here boolean,       -- and was delivered to the queue
    place text, created_at timestamptz, due_at timestamptz, type text, tags text[], route bigint, priority smallint, max_retries smallint,
    details jsonb, key text, payload jsonb, attempts int, failures smallint, crashes smallint, suspect boolean, holds_key boolean,
    item jsonb
);
