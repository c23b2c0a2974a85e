-- Takes back all claimed deliveries of a paused queue: they are ready again, with their counters,
-- and the workers that claimed them can no longer finish them. For a move: see export_queue. The
-- log records RESET. Repeat the call, with the waits_for that it returned, until it has nothing to
-- wait for and is not busy: then nothing is claimed, and no worker can claim anything before the
-- queue is resumed.
--     waits_for   transactions that began before the queue was known to be paused, and may be
--                 claiming from it; held_by names them
--     is_busy     workers are finishing some claims: a handler's transaction is open, most likely
-- Concurrency: waits half a second for a claim that another session has locked. Raises QU010,
-- QU011, QU030 outside READ COMMITTED, QU055 for a queue that is not paused.
create or replace function headrace.fence(
    namespace text, queue text default 'main', known text[] default null, actor text default null,
    out fenced bigint, out is_busy boolean, out waits_for text[], out held_by text
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
    t constant timestamptz := headrace._now();
    q constant headrace.queues := headrace._queue_named(fence.namespace, fence.queue);
    claim record;
    taken headrace.taken[] := '{}';
    part headrace.taken[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'fence needs READ COMMITTED: it takes back what others have just claimed';
    end if;
    perform headrace._raise_problem(headrace._move_problem(q), 0);
    -- A claim reads the queue's row first, and has its lock on the table until its transaction
    -- ends. A transaction that is prepared for a two-phase commit has another identifier, so fence
    -- waits for all of those.
    waits_for := array(
        select distinct l.virtualtransaction from pg_locks l
        where l.locktype = 'relation' and l.relation = 'headrace.queues'::regclass
          and l.pid is distinct from pg_backend_pid()
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
          and (fence.known is null or l.virtualtransaction = any (fence.known) or l.pid is null));
    held_by := replace(headrace._oldest_writer(waits_for), 'publish', 'claim');
    for claim in
        select d.lease, array_agg(d.event order by d.event) as events,
               array_agg(d.attempts order by d.event) as attempts,
               (select l.instance from headrace.leases l where l.id = d.lease) as instance
        from headrace.deliveries d where d.queue = q.id and d.lease is not null group by d.lease order by d.lease
    loop
        begin
            part := headrace._take_held(q, claim.events, claim.attempts)
                    || headrace._take_batched(q, claim.events, claim.attempts,
                                              array_fill(claim.lease, array[cardinality(claim.events)]));
            delete from headrace.leases l where l.id = claim.lease and l.events is null
              and not exists (select from headrace.held h where h.lease = l.id);
            perform headrace._interrupt(q.id, claim.lease, claim.instance, array(select k.event from unnest(part) k),
                                        'RESET');
            taken := taken || part;
        exception when lock_not_available then
            exit;
        end;
    end loop;
    fenced := cardinality(taken);
    is_busy := exists (select from headrace.deliveries d where d.queue = q.id and d.lease is not null);
    if fenced > 0 then
        perform headrace._log_moves(q, t, 'RESET', taken, headrace._actor(fence.actor), 'the queue is moved');
        perform headrace._requeue(q, t, taken);
        perform headrace._log_action(q.namespace, fence.actor, 'fence', q.name,
                                     jsonb_build_object('deliveries', fenced));
    end if;
end $$;
