-- Where a delivery stands: in exactly one of ready, keyed, delayed, a lease (with held) and
-- dead_letters.

create table headrace.ready (
    event      bigint not null,
    created_at timestamptz not null,
    route      bigint not null,
    seq        bigint not null,     -- its event's number, or drawn on entry: a returning delivery joins at the tail
    queue      int not null,
    attempts   int not null default 0,
    priority   smallint not null,
    failures   smallint not null default 0,
    crashes    smallint not null default 0,
    suspect    boolean not null default false,
    -- A pack: deliveries that were published together and never claimed, 16 at least before a
    -- claim opens it; `event` and seq are the first one's. All are of one bucket of 128 places (see
    -- _pack), so that a pack is found by any of its members.
    pack       bigint[],
    -- A token: some delivery of this key may be claimable, see keyed. Its `event` is 0.
    key        text,
    ready_at   timestamptz,         -- when its delay ended or it came back; null: since created_at. See _waiting_since
    primary key (queue, suspect, priority, route, seq)  -- the order of the claim
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
-- A fresh delivery has its event's number as seq and is found by the primary key. This index finds
-- the deliveries that came back, and costs nothing for those that never do.
create index ready_again on headrace.ready (queue, event) where seq <> event and key is null;
alter table headrace.ready alter column pack set storage main;

-- Deliveries with an ordering key that may be claimed once their turn has come: the lowest event
-- of a key goes first, and only when no other of the key is in progress. No claim looks for turns
-- here: `ready` has tokens, and a claim that meets a token looks whether it is good for a
-- delivery. A call that puts a delivery here or ends one of the key leaves a token, always: two
-- calls that do not see each other must not both rely on the other's.
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

-- The keys that have a delivery in progress, claimed or waiting for its retry; with the event 0, keys
-- whose deliveries wait for those on another shard: see slots.
create table headrace.active (
    queue int not null,
    key   text not null,
    event bigint not null,
    primary key (queue, key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);

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
    size       smallint not null,   -- deliveries that the claim took
    worker     text not null,
    suspect    boolean not null default false,
    reaped     boolean not null default false,  -- its time ran out; the rest is being finished right now
    -- A batch; null in a lease whose deliveries are held. Members of a batch are never suspects.
    events     bigint[],
    created_at timestamptz[],
    attempts   int[],               -- null, and failures too: it is the first attempt of all of them
    failures   smallint[],
    done       bit varying,         -- null: none is done yet
    instance   uuid,                -- the start of the node that claimed, see instances; null: not claimed by a node
    -- The end of a lenient lease charges no delivery: they come back as they were, never as
    -- suspects. A reader with a visibility timeout says how long others must not see the message,
    -- and does not promise to live so long.
    lenient    boolean not null default false,
    -- The length that the lease was given: a heartbeat that does not say how long gives the same
    -- again. Null until the first heartbeat: until then it is `until` - `picked_at`, and a claim
    -- need not write it.
    lasts      interval,
    extended_at timestamptz,        -- the last heartbeat; null: none, `until` counts from picked_at
    -- The proof that a claim is the caller's, which nobody can guess: made once for a lease,
    -- whatever it covers.
    token      uuid not null default gen_random_uuid(),
    -- Whether the worker collects the errors of its handlers: the status of a delivery that dies
    -- because this lease ran out depends on it. See _end_lease.
    collects   boolean not null default false
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
    token      uuid,                -- its lease's: a finish need not read the lease for it; null: nobody was told
    primary key (queue, event)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create index held_lease on headrace.held (lease);

-- Data that an attempt leaves for the next one, see save_progress: which handlers are done, how
-- far a long one has come. A row lives as long as its delivery, and with its dead letter, so that
-- a redriven delivery goes on where it stopped. The end of a delivery does not look here: upkeep
-- removes the rows of deliveries that have ended, see _forget_progress.
create table headrace.progress (
    queue    int not null,
    event    bigint not null,
    attempt  int not null,          -- that saved this value first
    value    jsonb not null,
    saved_at timestamptz not null,
    look_at  timestamptz not null,  -- when upkeep looks whether it is still needed
    primary key (queue, event)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index progress_look_at on headrace.progress (look_at);

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
