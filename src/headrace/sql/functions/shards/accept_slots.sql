-- Takes slots over that `giver` has given away: `given` is what give_slots returned there. From the
-- commit on this shard stores events with their keys, and hands them out after open_slots. Returns the
-- number of slots that are new here; a repeated call changes nothing.
-- Concurrency: waits for another change of slots, at most ten seconds.
-- Raises QU001; QU060 for a slot that has moved on; QU023 where deliveries of such a slot are left
-- here from an earlier time.
create or replace function headrace.accept_slots(giver int, given jsonb, actor text default null) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    here int;
    wrong headrace.slots;
    fresh int[];
    left_over record;
begin
    perform headrace._check_access(null);
    here := headrace._lock_slots();
    select s.* into wrong from headrace.slots s
    join jsonb_to_recordset(given) as g(slot int, version int) on g.slot = s.slot
    where s.version > g.version or s.version = g.version and s.home <> here order by s.slot limit 1;
    if found then
        raise exception using errcode = 'QU060',
            message = format('slot %s has moved on to shard %s', wrong.slot, wrong.home),
            detail = format('slot %s, home %s, version %s, ask {}', wrong.slot, wrong.home, wrong.version);
    end if;
    fresh := array(select s.slot from headrace.slots s
                   join jsonb_to_recordset(given) as g(slot int, version int) on g.slot = s.slot
                   where g.version > s.version);
    if fresh = '{}' then
        perform headrace._confirm_stored();
        return 0;
    end if;
    select * into left_over from headrace._slots_in_use(fresh);
    if left_over.waiting + left_over.held + left_over.delayed > 0 then
        raise exception using errcode = 'QU023',
            message = format('%s deliveries of these slots are left on shard %s from an earlier time: they must '
                             'end first', left_over.waiting + left_over.held + left_over.delayed, here);
    end if;
    update headrace.slots s
    set home = here, version = g.version, origin = giver,
        asked = array(select distinct a from unnest(g.asked || giver) a where a <> here order by a),
        ask_until = headrace._now() + headrace._setting('idempotency_retention')::interval
    from jsonb_to_recordset(given) as g(slot int, version int, asked int[])
    where s.slot = g.slot and s.slot = any (fresh);
    -- a dead letter that is redriven waits, too
    insert into headrace.active (queue, key, event)
    select distinct d.queue, d.key, 0 from headrace.dead_letters d join headrace.queues q on q.id = d.queue
    where d.key is not null and headrace._slot(q.space, d.key) = any (fresh)
    on conflict do nothing;
    perform headrace._slots_changed();
    perform headrace._log_action(null, accept_slots.actor, 'accept_slots', giver::text,
                                 jsonb_build_object('slots', to_jsonb(fresh)));
    return cardinality(fresh);
end $$;
