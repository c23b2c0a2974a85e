/*
  HEADRACE, THE ENGINE

  A state is a place. Nothing here has a status column: where a delivery stands is the table its row
  is in, and every transition is a statement that moves it from one table to another. A crash at any
  moment leaves each delivery in exactly one place, because a move is one transaction.

      publish ──► events          the event itself, once, for ever (its payload is never copied while it lives)
          │
          ├─────► ready           deliveries that may be claimed now: one for each queue that takes the event
          ├─────► keyed           the same, of an ordering key: one at a time, in their order
          └─────► delayed         deliveries that may not be claimed before due_at
                    │  ▲
              tick  ▼  │  finish(fail): backoff
              ready, keyed
                    │
              poll  ▼
                  leases          one row per claim: who, until when, and the arrays of what it covers
                  held            one row per delivery that is claimed on its own
                    │
            finish  ▼
                  outcomes        how attempts ended, one row per batch and bucket of ids
                  errors          what went wrong, one row each
                  dead_letters    what used up its attempts, with its body

  The claim is the whole trick. It deletes narrow rows from `ready` and writes ONE row to `leases`,
  however many deliveries it takes; the finish deletes that row and writes one or two rows to
  `outcomes`. Payloads do not move. And what was published together lies in `ready` together: a pack
  is one row for up to 128 fresh deliveries, claimed whole, or opened by whoever wants fewer. So an
  event of a batch costs hardly more WAL from its publish to its end than a bare row does.

  A bus. An event is stored once and delivered to every queue of its namespace that takes its type and
  tags. Which queues take a route is worked out once per version of the namespace's queues (bindings),
  and an event remembers the version it was published under: so a queue that begins in the past gets
  what came before it, once, and everything later by itself.

  Order. A delivery with an ordering key waits in `keyed`, and a token in `ready` says that it may be its
  turn. Whoever claims a token takes the key's first delivery, unless one of the key is in work
  (`active`): then the token is good for nothing, because whoever ends that one leaves another.

  Two ways to hold a claim:
    * a batch lives as arrays in its lease. Cheap, but the lease row is shared by its members: a
      finish locks it, so it must not be finished inside a long transaction.
    * `each`: every delivery gets a row of its own in `held`. Its finish deletes that row and never
      touches `leases`, which the heartbeat updates: no finish waits for a sibling or a heartbeat, at
      any isolation level. Transactional handlers, HTTP workers and suspects are held.

  Fencing. (event, queue, attempt) is the token. A claim counts the attempt in its own commit, before
  any handler runs. Whoever finishes must still find that attempt in `held` or unfinished in `leases`,
  in the very statement that moves it; so there is one valid holder at any moment, and one end.

  Suspects. When a lease runs out, nobody knows what killed the worker: one of its deliveries, one of
  another lease of the same process, or nothing here. They come back as suspects, uncharged. A suspect is
  claimed alone, one at a time by a worker, and only a suspect is charged a crash. So the poison is found
  after max(1, max_retries) + 1 starts and its neighbours live.

  One number line. `headrace.ids` numbers events, claims and outcomes, and gives `ready` its order. Ids
  grow; they are not dense. The number of a log entry is (id of its row) * 1024 + (position in it).

  Rules every function keeps:
    * ready, keyed, delayed and held are insert-and-delete only. The claim's `ctid = any(...)` delete is safe
      there and nowhere else: a row that is updated can be taken twice by it.
    * Lock order: leases by id, then held by (event, queue), then inserts. poll and tick never wait:
      they skip what is locked.
    * What one at a time may do has a row lock: see the table locks. Anybody who may connect can take an advisory
      lock, so those are hints: see advisory_lock.
    * The clock is read once per call, from headrace.now(); now() would give a lease that is born
      expired in a long transaction.
    * publish and finish draw ids only after their transaction has an xid, and nobody draws one before it
      holds a row-exclusive lock on a table of ours, so that a reader can tell which ids may still appear.
    * No DDL outside migrate and upkeep: it would queue publishers behind readers.
    * A look-up that spans places is one statement, so that a delivery on the move is seen once.
      "Ended" needs positive evidence: an outcome or a dead letter, never mere absence.
*/

create sequence headrace.ids;

-- Which number had been drawn when, a row a day: so that what is looked up by a number is looked for in the months it can be in. See
-- happened_since.
create table headrace.marks (
    id bigint primary key,
    at timestamptz not null
);

create table headrace.namespaces (
    id         int generated always as identity primary key,
    name       text collate "C" unique,         -- null: it was deleted
    version    int not null default 1,          -- of its queues: grows whenever what they take changes
    guarded    boolean not null default false,  -- one of its queues has a limit or is draining: publish must look
    floor      bigint not null default 0,       -- numbers up to here were drawn: publish stores nothing under them, see ids_behind
    unhandled  text not null default 'keep' check (unhandled in ('keep', 'dead_letter')),
    metadata   jsonb not null default '{}',
    created_at timestamptz not null,
    deleted_at timestamptz                      -- null: it was not
);
-- Two namespaces must not share the queue name that headrace.queue_name_for_namespace gives them.
create unique index namespaces_queue_name on headrace.namespaces (replace(name, '-', '_'));

create table headrace.queues (
    id          int generated always as identity primary key,
    namespace   int not null references headrace.namespaces,
    name        text collate "C" not null,
    space       text collate "C",                   -- its namespace's name, so that a call needs one look-up; null: it was deleted
    version     int not null default 1,             -- the namespace's when it began: it takes events of this version on
    takes       boolean not null default true,      -- false: switched off, it gets nothing new
    types       text[],                             -- what it takes, with asterisks; null: every type
    tags        text[],                             -- null: whatever the tags
    all_tags    boolean not null default false,     -- all of them, not any
    state       text not null default 'active' check (state in ('active', 'paused', 'draining')),
    max_retries smallint not null default 3,
    backoff     jsonb not null default '{"kind": "fixed", "delay": 300}',
    max_queue_depth      int,                       -- publish refuses from here on; null: never
    high_watermark       int,                       -- publish tells of pressure from here on; null: never
    batch_size           int,                       -- a claim takes at most as many; null: as many as it asks for
    processing_interval  int not null default 1000, -- milliseconds between the polls of an idle node
    metadata    jsonb not null default '{}',
    created_at  timestamptz not null,
    deleted_at  timestamptz,                        -- null: it was not
    unique (space, name)
);
create index queues_namespace on headrace.queues (namespace);

-- What tick still has to do for a queue: fill one that began in the past with what was published before it, clear one that
-- was deleted of what is still published into it. Both can be finished only when the transactions are over that were open
-- when the queue was made or deleted, because they do not know of it: see tick_chores.
create table headrace.chores (
    queue     int primary key,
    task      text not null check (task in ('fill', 'clear')),
    made_by   xid8 not null,            -- only compared with one's own, so that a copy of the database may have it, too
    actor     text,                     -- who deleted it
    waits_for text[],                   -- transactions that are not over; null: nobody has looked yet
    since     timestamptz,              -- events from this time on, ...
    done      bigint,                   -- ... above this one, the last that was looked at, ...
    last      bigint                    -- ... up to this one; null: not known before all transactions are over
);

-- How deep the queues that have a limit were a moment ago: see guard. Insert only, the newest counts: a row that is updated
-- would make publishers wait for each other, and under a held snapshot its versions would pile up in front of it.
create table headrace.depths (
    queue int not null,
    at    timestamptz not null,
    depth bigint not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create index depths_queue on headrace.depths (queue, at);
alter table headrace.depths replica identity full;

-- A route is a digest of (type, sorted tags): what a consumer's filter selects. Not unique on purpose:
-- nobody waits for somebody else's uncommitted first event, and a duplicate row does no harm.
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

-- Which queues take a route, worked out once for a version of the namespace's queues: a cache that is never wrong, because
-- whoever changes what queues take makes a new version. Insert only, and not unique, for the same reasons.
create table headrace.bindings (
    namespace  int not null,
    version    int not null,
    route      bigint not null,
    queues     int[] not null,
    type       text,                -- of the route, if that is one without tags: see publish_one
    created_at timestamptz not null
);
create index bindings_route on headrace.bindings (route, namespace, version);
alter table headrace.bindings replica identity full;

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
    details     jsonb,              -- title, description, version, source, ids of correlation …, backoff
    key         text                -- of ordering; null: none
) partition by range (created_at);
-- The table as a whole has no key: it would have to hold created_at, and let an id pass a second time at another time. Each
-- partition has one of its own, see make_partition; what is older is under the floor of its namespace.

-- Bodies of live events whose month has been dropped.
create table headrace.events_carried (like headrace.events, primary key (id));

create table headrace.ready (
    event      bigint not null,
    created_at timestamptz not null,
    route      bigint not null,
    seq        bigint not null,     -- its event's number, or drawn on entry: who comes back joins at the tail
    queue      int not null,
    attempts   int not null default 0,
    priority   smallint not null,
    failures   smallint not null default 0,
    crashes    smallint not null default 0,
    suspect    boolean not null default false,
    -- A pack: deliveries that were published together, 16 at least before it is opened, and never claimed; `event` and seq are the first one's. All are of
    -- one bucket of 128 ids, so that a pack is found by any of its members.
    pack       bigint[],
    -- A token: some delivery of this key may be claimable, see keyed. Its `event` is 0.
    key        text,
    ready_at   timestamptz,         -- when its delay ended or it came back; null: it is ready since created_at. See waits
    primary key (queue, suspect, priority, route, seq)  -- the order of the claim
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
-- A fresh delivery has its event's number as seq and is found by the key; this finds those that came back,
-- and costs nothing for those that never do.
create index ready_again on headrace.ready (queue, event) where seq <> event and key is null;
alter table headrace.ready alter column pack set storage main;

-- Deliveries with an ordering key that may be claimed once their turn has come: the lowest event of a key goes first, and
-- only when none of the key is in work. Nobody looks for turns here: `ready` has tokens, and a claim that meets one looks
-- what it is good for. Whoever puts a delivery here or ends one of the key leaves a token, always: two who do not see
-- each other must not both think that the other will.
create table headrace.keyed (
    queue      int not null,
    key        text not null,
    event      bigint not null,
    created_at timestamptz not null,
    route      bigint not null,
    attempts   int not null default 0,
    priority   smallint not null,
    failures   smallint not null default 0,
    crashes    smallint not null default 0,
    suspect    boolean not null default false,
    primary key (queue, key, event)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create index keyed_event on headrace.keyed (queue, event);

-- The keys that have a delivery in work, claimed or waiting for its retry.
create table headrace.active (
    queue int not null,
    key   text not null,
    event bigint not null,
    primary key (queue, key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);

-- Where a caller's next claim may start, per pair of priority and route: see poll. next_at is seconds, because hints
-- travel as text and sessions write times in their own ways.
create type headrace.hint as (suspect boolean, priority smallint, route bigint, low bigint, next bigint, next_at float8);

-- A queue as `queues` lists it.
create type headrace.listed_queue as (
    name text, state text, takes boolean, types text[], tags text[], all_tags boolean, depth bigint, filling text,
    max_retries smallint, backoff jsonb, max_queue_depth int, high_watermark int, batch_size int, processing_interval int,
    metadata jsonb, created_at timestamptz
);

-- What events of one batch have in common, everything but the payload: see publish_batch.
create type headrace.head as (
    n int, type text, tags text[], sorted text[], route bigint, priority smallint, max_retries smallint, details jsonb,
    due_at timestamptz, key text, idempotency_key text, queues int[]
);

-- What a claim took out of `ready`, column by column: see claim_pair.
create type headrace.haul as (
    first bigint,   -- the lowest number of what it took out, though it be a useless token; null: it left all as it was
    events bigint[], created timestamptz[], seqs bigint[], attempts int[], failures smallint[],
    keys text[]     -- of ordering; null: none has one
);

-- What poll hands out.
create type headrace.claimed as (
    id bigint, attempt int, type text, tags text[], payload jsonb, details jsonb, priority smallint,
    retry_count smallint, crashes smallint, max_retries smallint, created_at timestamptz,
    lease bigint, held boolean, lease_expires_at timestamptz, hints text
);

-- What a claim holds, column by column: see claim.
create type headrace.lot as (
    lease bigint, held boolean, until timestamptz,
    max_retries smallint,           -- the queue's
    hints text, events bigint[], created timestamptz[], attempts int[], priorities smallint[], failures smallint[], crashes smallint[],
    is_plain boolean                -- none was claimed before, or has a key: they are told in the order of priority and id
);

-- The same for events that have everything in common but what is an array here: see poll_batch.
create type headrace.alike as (
    ids bigint[], payloads text, details text, type text, tags text[], attempt int, priority smallint, retry_count smallint,
    crashes smallint, max_retries smallint, created bytea, lease bigint, held boolean, lease_expires_at timestamptz, hints text
);

-- A delivery that a call has just taken out of a claim, on its way to another place: see finish.
create type headrace.taken as (
    item int, event bigint, attempt int, created_at timestamptz, failures smallint, crashes smallint,
    suspect boolean, lease bigint, "position" smallint, picked_at timestamptz, worker text, key text
);

-- What somebody looks for, checked and made plain: see filter.
create type headrace.wanted as (
    statuses text[], routes bigint[], since timestamptz, until timestamptz, key text, orphaned_since timestamptz,
    unfiltered boolean      -- by nothing but the status
);

-- An event and where its delivery in a queue stands: what event and events tell.
create type headrace.shown as (
    id bigint, type text, tags text[], payload jsonb, details jsonb, priority smallint, status text, attempts int,
    retry_count smallint, crashes smallint, max_retries smallint, next_retry_at timestamptz, worker_id text,
    processing_started_at timestamptz, lease_expires_at timestamptz, created_at timestamptz, updated_at timestamptz, key text
);

-- A dead letter, as it is told.
create type headrace.letter as (
    id bigint, type text, tags text[], payload jsonb, details jsonb, priority smallint, status text, reason text, error text,
    fingerprint text, attempts int, retry_count smallint, crashes smallint, max_retries smallint, created_at timestamptz,
    died_at timestamptz, key text
);

-- What finish answers.
create type headrace.verdict as (
    item int, verdict text, action text, at timestamptz, retry_at timestamptz, retry_count smallint, max_retries smallint
);

create table headrace.delayed (
    event      bigint not null,
    created_at timestamptz not null,
    due_at     timestamptz not null,
    route      bigint not null,
    queue      int not null,
    attempts   int not null default 0,
    priority   smallint not null,
    failures   smallint not null default 0,
    crashes    smallint not null default 0,
    suspect    boolean not null default false,
    key        text,                -- of ordering; null: none
    primary key (queue, event)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create index delayed_due on headrace.delayed (due_at);

create table headrace.leases (
    id         bigint primary key,
    until      timestamptz not null,
    picked_at  timestamptz not null,
    namespace  int not null,
    queue      int not null,
    size       smallint not null,   -- deliveries it was made over
    worker     text not null,
    suspect    boolean not null default false,
    reaped     boolean not null default false,  -- its time ran out; what is left is being finished right now
    -- A batch; null in a lease whose deliveries are held. Members of a batch are never suspects.
    events     bigint[],
    created_at timestamptz[],
    attempts   int[],               -- null, and failures too: it is the first attempt of them all
    failures   smallint[],
    done       bit varying          -- null: none is done yet
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0,
        vacuum_truncate = false);
create index leases_until on headrace.leases (until);
create index leases_suspects on headrace.leases (queue, worker, id) where suspect;
create index leases_batches on headrace.leases (queue, id) where events is not null;
-- Out of line and not compressed, so that a heartbeat does not rewrite the arrays.
alter table headrace.leases
    alter column events set storage external,
    alter column created_at set storage external,
    alter column attempts set storage external,
    alter column failures set storage external;

create table headrace.held (
    event      bigint not null,
    created_at timestamptz not null,
    route      bigint not null,
    lease      bigint not null,
    queue      int not null,
    attempt    int not null,
    position   smallint not null,   -- in its lease, from 0
    priority   smallint not null,
    failures   smallint not null,
    crashes    smallint not null,
    suspect    boolean not null,
    key        text,                -- of ordering; null: none
    primary key (queue, event)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create index held_lease on headrace.held (lease);

-- One row per call, lease, action and bucket of 1,024 event ids: an event's rows are found by its bucket.
create table headrace.outcomes (
    id         bigint not null,
    at         timestamptz not null,
    picked_at  timestamptz,         -- of the claim that this ends; null for what ends none
    bucket     bigint not null,
    lease      bigint,
    namespace  int not null,
    queue      int not null,
    action     text not null,
    worker     text,                -- whose claim it was
    actor      text,                -- who did it, where that is somebody else: an administrator
    reason     text,                -- and why
    events     bigint[] not null,
    attempts   int[] not null,
    positions  smallint[],          -- in the lease, from 0; what is missing at the end goes on counting from the first
    ms         int[],
    codes      int[],
    primary key (id, at)
) partition by range (at);
-- Not compressed: that would take longer than all else of a finish, to save five bytes an event.
alter table headrace.outcomes alter column events set storage external;
create index outcomes_bucket on headrace.outcomes (bucket, queue);
-- Finds where the claims of a stretch of the log were noted when they had ended; costs a finish nothing: see log_since.
create index outcomes_lease on headrace.outcomes using brin (lease) with (autosummarize = on, pages_per_range = 16);

create table headrace.errors (
    outcome     bigint not null,    -- the outcome's row this belongs to
    event       bigint not null,
    at          timestamptz not null,
    queue       int not null,
    attempt     int not null,
    failures    smallint not null,  -- so far, this one included
    max_retries smallint not null,  -- by the policy that was applied
    retry_at    timestamptz,        -- null: this was the end
    error       text not null,
    primary key (event, queue, outcome, at)
) partition by range (at);

create table headrace.dead_letters (
    event       bigint not null,
    queue       int not null,
    namespace   int not null,
    created_at  timestamptz not null,
    died_at     timestamptz not null,
    status      text not null,      -- FAILED or COMPLETED_WITH_ERRORS
    reason      text not null,
    error       text,
    fingerprint text,               -- of its kind of error
    attempts    int not null,
    failures    smallint not null,
    crashes     smallint not null,
    route       bigint not null,
    priority    smallint not null,
    max_retries smallint,
    type        text not null,
    tags        text[],
    payload     jsonb not null,
    details     jsonb,
    key         text,
    primary key (queue, event)
);
create index dead_letters_recent on headrace.dead_letters (queue, died_at);
create index dead_letters_kinds on headrace.dead_letters (queue, fingerprint, died_at, event) include (type);

-- What was published under a key of the caller's, so that whoever is not sure may publish it again: kept for a week.
create table headrace.idempotency (
    namespace  int not null,
    key        text not null,
    event      bigint not null,
    created_at timestamptz not null,    -- of the event
    digest     bytea not null,          -- of its type, tags, ordering key and payload
    primary key (namespace, key)
);
create index idempotency_created_at on headrace.idempotency (created_at);

-- The net under the monthly partitions: see make_partitions.
create table headrace.events_default partition of headrace.events default;
alter table headrace.events_default add primary key (id);
create table headrace.outcomes_default partition of headrace.outcomes default;
create table headrace.errors_default partition of headrace.errors default;
