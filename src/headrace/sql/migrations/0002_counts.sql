-- What happened, counted: each call appends to `counts`, tick folds it into a row per queue and minute.

create table headrace.counts (
    at        timestamptz not null,
    namespace int not null,
    queue     int not null,
    published int not null default 0,
    completed int not null default 0,
    failed    int not null default 0,
    abandoned int not null default 0,
    dead      int not null default 0,
    attempts  int not null default 0,       -- that ended
    timed     int not null default 0,       -- that said how long they took
    ms        bigint not null default 0     -- what they said
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
alter table headrace.counts replica identity full;
-- So that a fold finds the new ones although vacuum is held up and the folded ones still lie there.
create index counts_at on headrace.counts (at);

create table headrace.stats (
    minute    timestamptz not null,
    namespace int not null,
    queue     int not null,
    published bigint not null,
    completed bigint not null,
    failed    bigint not null,
    abandoned bigint not null,
    dead      bigint not null,
    attempts  bigint not null,
    timed     bigint not null,
    ms        bigint not null,
    primary key (queue, minute)
);

-- When which upkeep is due next, so that a tick every second does not do it every second.
create table headrace.upkeep (
    task    text primary key,
    next_at timestamptz not null,
    problem text                    -- what failed in it last; null: nothing
);

-- What the clock showed, a reading in five minutes or so, twelve of them: see read_clock. Nothing is thrown away on the word of one.
create table headrace.clock_readings (
    at timestamptz primary key
);

-- What somebody has set; the defaults are in the function headrace.setting.
create table headrace.settings (
    name  text primary key,
    value text not null
);
