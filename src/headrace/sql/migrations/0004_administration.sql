-- Who may ask over HTTP, who changed what, and what has happened in all.

-- The tokens of the HTTP API. A token itself is kept nowhere: what is stored is its SHA-256, which of 256 random bits tells
-- as little as the slowest hash would.
create table headrace.api_tokens (
    id         int generated always as identity primary key,
    name       text collate "C" not null,
    digest     bytea not null unique,
    scopes     text[] not null,
    namespaces text[],                  -- null: all of them
    created_at timestamptz not null,
    created_by text not null,
    expires_at timestamptz,             -- null: never
    revoked_at timestamptz,             -- null: it was not
    revoked_by text
);
create unique index api_tokens_name on headrace.api_tokens (name) where revoked_at is null;

-- What was done on purpose, by whom: an entry a call that changed something. Insert only, kept as long as finished months are.
create table headrace.admin_log (
    id        bigint generated always as identity primary key,
    at        timestamptz not null,
    namespace int,                      -- null: the whole installation
    actor     text not null,
    action    text not null,            -- the name of the function that did it
    target    text,                     -- what it was done to: a queue, a schedule, an event …
    details   jsonb
);
create index admin_log_namespace on headrace.admin_log (namespace, id);
create index admin_log_at on headrace.admin_log (at);

-- How many failed or abandoned attempts were followed, or will be, by another.
alter table headrace.counts add column retried int not null default 0;
alter table headrace.stats add column retried bigint not null default 0;

-- All that stats ever counted: those are forgotten after a month, and whoever watches counters wants them to grow.
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
insert into headrace.totals (queue, published, completed, failed, retried, abandoned, dead, attempts, timed, ms)
select queue, sum(published), sum(completed), sum(failed), 0, sum(abandoned), sum(dead), sum(attempts), sum(timed), sum(ms)
from headrace.stats group by queue;
