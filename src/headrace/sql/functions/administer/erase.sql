-- Erases the content of an event, for good: its payload, which becomes {"erased": true}, everything
-- that describes it (title, description, source, the ids of correlation …), its ordering key, its
-- idempotency key (which is free again), the texts of its errors, the progress that its attempts
-- have saved, its dead letters, and its place in saved states. The trail stays: type and tags, the
-- times and actors of each step, and how it ended. Unfinished deliveries are cancelled first, in
-- all queues: they would have nothing left to work on. A worker that has it in progress has read it
-- already; the worker's lease is lost.
-- Returns whether this call erased it; an event that was erased before stays as it is. actor,
-- reason: as in cancel. PostgreSQL keeps the old rows until they are vacuumed, and in its WAL, its
-- copies and your backups.
-- Concurrency: as cancel; all or nothing. Raises QU010, QU012, QU023, and QU030 outside READ
-- COMMITTED, where the call might not see everything to erase.
create or replace function headrace.erase(
    namespace text, event_id bigint, reason text default null, actor text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    home int := (select n.id from headrace.namespaces n where n.name = erase.namespace);
    whole headrace.queues;      -- no queue: the entry is about the event
    its_queue int;
begin
    perform headrace._check_access(erase.namespace);
    if home is null then
        perform headrace._raise_no_such_queue(erase.namespace, 'main');
    elsif current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'erase needs READ COMMITTED: what it does not see it does not erase';
    end if;
    perform headrace._lock(concat('erase ', erase.event_id));
    if exists (select from headrace.chores c where c.task = 'fill') then
        perform headrace._lock('fill');   -- a queue that is being filled now may receive it: see _tick_queues
    end if;
    if exists (
        select from headrace.outcomes o
        where o.bucket = headrace._bucket(erase.event_id) and o.queue = 0 and o.namespace = home
          and erase.event_id = any (o.events) and o.action = 'ERASED')
    then
        perform headrace._confirm_stored();
        return false;
    elsif not exists (select from headrace.events e where e.id = erase.event_id and e.namespace = home)
      and not exists (select from headrace.events_carried c where c.id = erase.event_id and c.namespace = home)
      and not exists (
        select from headrace.queues q join headrace.dead_letters x on x.queue = q.id and x.event = erase.event_id
        where q.namespace = home) then
        raise exception using errcode = 'QU012', message = format('there is no event %s in the namespace %L',
                                                                  erase.event_id, erase.namespace);
    end if;

    perform headrace._cancel_everywhere(home, erase.event_id, t, headrace._actor(erase.actor), erase.reason);
    update headrace.events e set payload = '{"erased": true}', details = null, key = null
    where e.id = erase.event_id and e.namespace = home;
    update headrace.events_carried c set payload = '{"erased": true}', details = null, key = null
    where c.id = erase.event_id and c.namespace = home;
    delete from headrace.idempotency i
    where i.namespace = home and i.event = erase.event_id and i.created_at in (
        select e.created_at from headrace.events e where e.id = erase.event_id
        union all
        select c.created_at from headrace.events_carried c where c.id = erase.event_id);
    delete from headrace.progress p using headrace.queues q
    where q.namespace = home and p.queue = q.id and p.event = erase.event_id;
    update headrace.errors r set error = '(erased)' where r.event = erase.event_id and r.error <> '';
    -- Also from the saved states. A session that is saving a state may have read the event before,
    -- so the call waits for it.
    for its_queue in
        select distinct o.queue from headrace.outcomes o
        where o.bucket = headrace._bucket(erase.event_id) and o.queue <> 0 and o.namespace = home
          and erase.event_id = any (o.events)
        order by o.queue
    loop
        perform headrace._lock('state ' || its_queue);
        update headrace.event_queue_state s
        set events = (
            select coalesce(jsonb_agg(m.item order by m.n), '[]')
            from jsonb_array_elements(s.events) with ordinality as m(item, n)
            where m.item ->> 'eventId' <> erase.event_id::text)
        from headrace.queues q
        where q.id = its_queue and s.id = q.space || '/' || q.name
          and s.events @> jsonb_build_array(jsonb_build_object('eventId', erase.event_id::text));
    end loop;
    whole.id := 0;
    whole.namespace := home;
    perform headrace._log_moves(whole, t, 'ERASED', array[headrace._taken_delivery(erase.event_id)],
                                headrace._actor(erase.actor), erase.reason);
    perform headrace._log_action(home, erase.actor, 'erase', erase.event_id::text,
                                jsonb_build_object('reason', nullif(left(erase.reason, 1000), '')));
    return true;
exception when lock_not_available then
    perform headrace._raise_busy(erase.event_id);
end $$;
