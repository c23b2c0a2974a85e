-- Removes what waits in a queue, or its dead letters: those of these types (any may hold asterisks), of dead letters also those
-- with these ids, or of one kind of error (see dead_letter_groups); null: all.
--     ready          what could be claimed now: cancelled
--     delayed        what waits for its time, a retry too: cancelled
--     dead_letters   removed with their events' copies; the log still says how each of them ended
-- What is in work stays. The log says for each who removed it and why: CANCELLED, or PURGED.
--
-- In steps, as redrive: a call removes about `most` (what was published together may go together), and while it returns
-- `more`, call it again with the `started_at` and `done` it returned. What comes after the first call began stays.
-- Concurrency: passes by what is locked. Raises QU001, QU010, QU011.
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
    t timestamptz := headrace.now();
    q headrace.queues := headrace.its_queue(purge.namespace, purge.queue);
    routes bigint[];
    taken headrace.taken[];
begin
    if purge.what is null or purge.what not in ('ready', 'delayed', 'dead_letters') then
        raise exception using errcode = 'QU001', message = 'what is purged is ready, delayed or dead_letters';
    elsif coalesce(purge.ids::text, purge.fingerprint) is not null and purge.what <> 'dead_letters' then
        raise exception using errcode = 'QU001', message = 'only dead letters are purged by ids or fingerprint; cancel ends others';
    elsif purge.most is null or purge.most not between 1 and 10000 then
        raise exception using errcode = 'QU001', message = 'a step is over 1 to 10000 deliveries';
    end if;
    purge.started_at := coalesce(purge.started_at, t);
    if purge.what = 'dead_letters' then
        taken := headrace.take_letters(q, headrace.lock_letters(
            q, purge.ids, purge.types, purge.fingerprint, purge.started_at, purge.most, hollow => true));
        t := headrace.now();
        perform headrace.note(q, t, 'PURGED', taken, headrace.actor(purge.actor), purge.reason);
    else
        if purge.types is not null then
            routes := headrace.matching_routes(q.namespace, purge.types, null, false);
        end if;
        taken := headrace.take_many(q, purge.what, routes, purge.started_at, purge.most);
        t := headrace.now();
        perform headrace.note(q, t, 'CANCELLED', taken, headrace.actor(purge.actor), purge.reason);
        perform headrace.pass_on(q, t, taken);
    end if;
    if taken <> '{}' then
        perform headrace.log_action(q.namespace, purge.actor, 'purge', q.name, jsonb_build_object(
            'what', purge.what, 'deliveries', cardinality(taken), 'types', purge.types, 'fingerprint', purge.fingerprint,
            'reason', nullif(left(purge.reason, 1000), '')));
    else
        perform headrace.confirm();
    end if;
    purge.done := coalesce(purge.done, 0) + cardinality(taken);
    purge.more := cardinality(taken) >= purge.most;
end $$;
