-- Retries dead letters of a queue, the longest dead first: all of them, those with these ids, those
-- of these types (any may hold asterisks), those of one kind of error (see dead_letter_groups). The
-- event keeps its id and attempts go on growing; failures and crashes start at zero. A delivery
-- that crashed its workers comes back as a suspect. Ids that are not dead letters are skipped, and so
-- are, without ids, those whose unique key another unfinished event holds: of several with one key
-- the longest dead is redriven.
-- rate: the rate limit per second; the others are delayed accordingly.
--
-- A call redrives at most `most`, and `more` says that there may be more. To go on, call again with
-- the `started_at` and `done` (the number redriven so far) that the call returned: the series then
-- ends, though some die again meanwhile, and the rate is kept.
-- Concurrency: skips locked rows; each dead letter goes one way under any race of redrives and
-- purges.
-- Raises QU001, QU010, QU011, QU023, QU026 for a dead letter named by its id whose unique key another
-- unfinished event holds.
create or replace function headrace.redrive(
    namespace text,
    queue text default 'main',
    ids bigint[] default null,
    types text[] default null,
    fingerprint text default null,
    rate float8 default null,
    reason text default null,
    actor text default null,
    most int default 1000,
    inout started_at timestamptz default null,
    inout done bigint default 0,
    out more boolean
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    q headrace.queues := headrace._queue_named(redrive.namespace, redrive.queue);
    letters bigint[];
    alone bigint[];     -- without those that share their unique key with an earlier one
    revived int;
    due_at timestamptz[];
begin
    if rate not between 0.000001 and 1000000 then
        raise exception using errcode = 'QU001',
            message = 'a rate is a number of events a second, from 0.000001 to 1000000';
    elsif redrive.most is null or redrive.most not between 1 and 10000 then
        raise exception using errcode = 'QU001', message = 'a step is over 1 to 10000 deliveries';
    end if;
    redrive.started_at := coalesce(redrive.started_at, t);
    redrive.done := coalesce(redrive.done, 0);
    letters := headrace._lock_dead_letters(q, redrive.ids, redrive.types, redrive.fingerprint, redrive.started_at,
                                           redrive.most);
    alone := letters;
    if redrive.ids is null then
        alone := array(
            select k.event
            from (
                select l.event, l.n, x.details ->> 'unique' as key,
                       row_number() over (partition by x.details ->> 'unique' order by l.n) as nth
                from unnest(letters) with ordinality as l(event, n)
                join headrace.dead_letters x on x.queue = q.id and x.event = l.event
            ) k
            where k.key is null or k.nth = 1
            order by k.n);
    end if;
    if redrive.rate is not null then
        due_at := array(
            select redrive.started_at + make_interval(secs => (redrive.done + n) / redrive.rate)
            from generate_series(0, cardinality(alone) - 1) n);
    end if;
    revived := cardinality(headrace._revive(q, t, alone, due_at, headrace._actor(redrive.actor), redrive.reason));
    if revived > 0 then
        perform headrace._log_action(q.namespace, redrive.actor, 'redrive', q.name, jsonb_build_object(
            'deliveries', revived, 'types', redrive.types, 'fingerprint', redrive.fingerprint, 'rate', redrive.rate,
            'reason', nullif(left(redrive.reason, 1000), '')));
    else
        perform headrace._confirm_stored();
    end if;
    redrive.done := redrive.done + revived;
    redrive.more := cardinality(letters) = redrive.most;
end $$;
