-- What an attempt leaves for the next one, see save_progress: which handlers are done, how far a long one has come. A row lives as
-- long as its delivery, and with its dead letter, so that who is redriven goes on where he was. Who ends a delivery does not
-- look here: upkeep removes what has ended, see forget_progress.
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
