-- Stores a JSON value of at most 64 KiB for the next attempt of a delivery and replaces the one
-- before: the next worker reads it by `progress`. Only the current attempt may. lease, lease_token:
-- as in finish; null works, and is slower for a delivery of a batch. Inside a transaction of the
-- caller's it is stored if that commits. finish saves together with the end of an attempt.
-- Concurrency: no session ends the attempt or takes it away between the look and the commit. Waits
-- for a session that is doing that now, and, as a batch's finish, makes its siblings' finishes
-- wait: keep a batch's out of long transactions.
-- Raises QU001 without a token, where the queue requires one, QU002, QU003, QU010, QU011, QU020
-- when the attempt is not the current one.
create or replace function headrace.save_progress(
    namespace text, event bigint, attempt int, progress jsonb, queue text default 'main', lease bigint default null,
    lease_token text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    q headrace.queues := headrace._queue_named(save_progress.namespace, save_progress.queue);
    batch bigint;
    named int := save_progress.attempt;
begin
    perform headrace._raise_problem(headrace._progress_problem(save_progress.progress), 0);
    if lease_token is not null or q.require_lease_token then
        named := (headrace._proven_attempts(q, array[save_progress.event], array[named], array[save_progress.lease],
                                            null, array[lease_token]))[1];
    end if;
    if q.require_lease_token then
        lease_token := coalesce(lease_token, '');
    end if;
    perform from headrace.held h
    where h.queue = q.id and h.event = save_progress.event and h.attempt = named
      and (lease_token is null or h.token::text = lease_token)
    for key share;
    if not found then
        batch := coalesce(save_progress.lease, (headrace._leases_of(
            q, '{}', array[save_progress.event], array[named], array[null::bigint]))[1]);
        perform from headrace.leases l
        where l.id = batch and l.queue = q.id and (lease_token is null or l.token::text = lease_token) and exists (
            select from unnest(l.events, l.attempts) with ordinality as m(event, attempt, n)
            where m.event = save_progress.event and coalesce(m.attempt, 1) = named
              and (l.done is null or get_bit(l.done, m.n::int - 1) = 0))
        for key share;
    end if;
    if not found then
        perform headrace._raise_unless_counted(row(1, 'lost', null, null, null, null, null)::headrace.verdict);
    end if;
    insert into headrace.progress as p (queue, event, attempt, value, saved_at, look_at)
    values (q.id, save_progress.event, save_progress.attempt, coalesce(save_progress.progress, 'null'), t,
            t + interval '1 hour')
    on conflict on constraint progress_pkey do update
    set attempt = case when p.value = excluded.value then p.attempt else excluded.attempt end, value = excluded.value,
        saved_at = excluded.saved_at, look_at = excluded.look_at;
end $$;
