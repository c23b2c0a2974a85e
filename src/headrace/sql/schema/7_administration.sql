-- Settings, tokens, the administration log, upkeep, locks and optional parts.

-- Settings that were changed; the defaults are in the function headrace._setting.
create table headrace.settings (
    name  text primary key,
    value text not null
);

-- The tokens of the HTTP API. The tokens themselves are stored nowhere, only their SHA-256: of 256
-- random bits it tells as little as the slowest hash would.
create table headrace.api_tokens (
    id         int generated always as identity primary key,
    name       text collate "C" not null,
    digest     bytea not null unique,
    scopes     text[] not null,
    namespaces text[],                  -- null: all of them
    created_at timestamptz not null,
    created_by text not null,
    expires_at timestamptz,             -- null: never
    revoked_at timestamptz,             -- null: not revoked
    revoked_by text
);
create unique index api_tokens_name on headrace.api_tokens (name) where revoked_at is null;

-- Administrative calls and their actors: an entry a call that changed something. Insert only, kept
-- as long as finished months are.
create table headrace.admin_log (
    id        bigint generated always as identity primary key,
    at        timestamptz not null,
    namespace int,                      -- null: the whole installation
    actor     text not null,
    action    text not null,            -- the name of the function that did it
    target    text,                     -- the queue, schedule, event … that it was done to
    details   jsonb
);
create index admin_log_namespace on headrace.admin_log (namespace, id);
create index admin_log_at on headrace.admin_log (at);

-- When which upkeep is due next, so that a tick every second does not do it every second.
create table headrace.upkeep (
    task    text primary key,
    next_at timestamptz not null,
    problem text                    -- its last error; null: none
);

-- Readings of the clock, one in five minutes or so, twelve of them: see _read_clock. Retention
-- throws nothing away on the word of one.
create table headrace.clock_readings (
    at timestamptz primary key
);

-- Tasks that one session at a time may do: a row for each, which is locked (`for update`) and
-- never updated. An advisory lock would not do: every role that may connect can take it, and keep
-- it. See _try_lock, and sql/locks.md for all names. Those with a number are made when a call wants
-- them, and upkeep removes them.
create table headrace.locks (
    name text collate "C" primary key
);
insert into headrace.locks (name)
select unnest('{clock,counts,fill,horizon,states,unhandled,upkeep}'::text[]);

-- Parts that were installed beside this schema, on request: see the folders of sql/parts.
-- migrate keeps them up to date.
create table headrace.optional (
    name         text primary key,
    digest       text not null,         -- of its files
    declarations jsonb not null,        -- as in headrace.release
    installed_at timestamptz not null
);
