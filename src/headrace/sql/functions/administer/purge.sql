-- Removes waiting deliveries of a queue, or its dead letters: those of these types (any may hold
-- asterisks), and dead letters also by ids, or by kind of error (see dead_letter_groups); null:
-- all.
--     ready          deliveries that could be claimed now: cancelled
--     delayed        deliveries that wait for their time, retries too: cancelled
--     dead_letters   removed with their events' copies; the log still says how each of them ended
-- Deliveries in progress stay. The log records the actor and the reason for each removed delivery:
-- CANCELLED, or PURGED.
--
-- In steps, as redrive: a call removes about `most` (deliveries that were published together may go
-- together). While it returns `more`, call it again with the `started_at` and `done` it returned.
-- Deliveries that arrive after the first call began stay.
-- Concurrency: skips locked rows. Raises QU001, QU010, QU011.
create or replace function headrace.purge(
    namespace text,
    queue text,
    what text,
    ids bigint[] default null,
    types text[] default null,
    fingerprint text default null,
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
    q headrace.queues := headrace._queue_named(purge.namespace, purge.queue);
    routes bigint[];
    taken headrace.taken[];
begin
    if purge.what is null or purge.what not in ('ready', 'delayed', 'dead_letters') then
        raise exception using errcode = 'QU001', message = 'purge removes ready, delayed or dead_letters';
    elsif coalesce(purge.ids::text, purge.fingerprint) is not null and purge.what <> 'dead_letters' then
        raise exception using errcode = 'QU001',
            message = 'only dead letters are purged by ids or fingerprint; cancel ends others';
    elsif purge.most is null or purge.most not between 1 and 10000 then
        raise exception using errcode = 'QU001', message = 'a step is over 1 to 10000 deliveries';
    end if;
    purge.started_at := coalesce(purge.started_at, t);
    if purge.what = 'dead_letters' then
        taken := headrace._take_dead_letters(q, headrace._lock_dead_letters(
            q, purge.ids, purge.types, purge.fingerprint, purge.started_at, purge.most, hollow => true));
        t := headrace._now();
        perform headrace._log_moves(q, t, 'PURGED', taken, headrace._actor(purge.actor), purge.reason);
    else
        if purge.types is not null then
            routes := headrace._filtered_routes(q.namespace, purge.types, null, false);
        end if;
        taken := headrace._take_many(q, purge.what, routes, purge.started_at, purge.most);
        t := headrace._now();
        perform headrace._log_moves(q, t, 'CANCELLED', taken, headrace._actor(purge.actor), purge.reason);
        perform headrace._release_keys(q, t, taken);
    end if;
    if taken <> '{}' then
        perform headrace._log_action(q.namespace, purge.actor, 'purge', q.name, jsonb_build_object(
            'what', purge.what, 'deliveries', cardinality(taken), 'types', purge.types, 'fingerprint',
            purge.fingerprint,
            'reason', nullif(left(purge.reason, 1000), '')));
    else
        perform headrace._confirm_stored();
    end if;
    purge.done := coalesce(purge.done, 0) + cardinality(taken);
    purge.more := cardinality(taken) >= purge.most;
end $$;
