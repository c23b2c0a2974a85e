-- Retries dead letters: they are ready again, or, where due_at[i] is later, delayed until then.
-- Attempts go on growing, failures and crashes start at zero. A delivery that crashed its workers
-- comes back as a suspect, so that it takes no others along.
-- Returns those that were dead letters. A dead letter whose event was lost before it died stays:
-- there is nothing to deliver.
-- Raises QU023 when another session has had one of them, or its unique key, locked for half a
-- second, and QU026 when another unfinished event holds the unique key of one.
--
-- Only this function, rerun and _fill_from_past make a delivery alive in a month that is past.
-- Retention may be carrying over the live events of that month without seeing this one, so this
-- function carries over events of past months itself. It adds a new row, which a `_forget` that
-- began before does not see.
create or replace function headrace._revive(
    q headrace.queues, t timestamptz, events bigint[], due_at timestamptz[], actor text, reason text
) returns headrace.taken[]
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    month constant timestamptz := date_trunc('month', t, 'UTC');
    letters bigint[];
    died timestamptz;
    carried bigint[];
    taken headrace.taken[];
begin
    select max(l.died_at) into died from (
        select x.died_at from headrace.dead_letters x where x.queue = q.id and x.event = any (_revive.events)
        order by x.event for update
    ) l;
    t := headrace._log_time(headrace._now(), died);
    letters := array(
        select i.event from unnest(_revive.events) with ordinality as i(event, item)
        join headrace.dead_letters x on x.queue = q.id and x.event = i.event and x.route <> 0
        order by i.item);
    perform headrace._take_back_unique_keys(q.namespace, array_agg(x.event), array_agg(x.details ->> 'unique'),
                                            array_agg(x.created_at))
    from headrace.dead_letters x
    where x.queue = q.id and x.event = any (letters) and x.details ? 'unique';
    carried := array(
        select x.event from headrace.dead_letters x
        where x.queue = q.id and x.event = any (letters)
          and (x.created_at < month
               or not exists (
                   select from headrace.events e
                   where e.id = x.event and e.created_at = x.created_at and e.created_at >= month)));
    if carried <> '{}' then
        delete from headrace.events_carried c where c.id = any (carried);
        insert into headrace.events_carried (id, created_at, route, namespace, version, priority, max_retries, type,
                                             tags, payload, details, key)
        select x.event, x.created_at, x.route, x.namespace, 0, x.priority, x.max_retries, x.type, x.tags, x.payload,
               x.details, x.key
        from headrace.dead_letters x where x.queue = q.id and x.event = any (carried)
        on conflict do nothing;
    end if;
    taken := headrace._take_dead_letters(q, letters);
    if taken <> '{}' then
        perform headrace._log_moves(q, t, 'REDRIVEN', taken, _revive.actor, _revive.reason);
        perform headrace._requeue(q, t, taken, _revive.due_at);
    end if;
    return taken;
exception when lock_not_available then
    perform headrace._raise_busy(_revive.events[1]);
end $$;
