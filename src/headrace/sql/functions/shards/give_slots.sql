-- Gives slots of keys to another shard: from the commit on this shard refuses events with their keys,
-- and names the new home. What was published here stays here and is worked off here. Returns what
-- accept_slots takes on the new home, which has to follow at once: until then no shard takes such
-- events. A repeated call changes nothing and returns the same. A shard that is its own recipient
-- keeps them.
-- A move goes on with slots_left here, until nothing is left, and ends with open_slots on the new home.
-- Concurrency: waits for another change of slots, at most ten seconds.
-- Raises QU001; QU060 for a slot that has another home; QU023 for one that is still arriving here.
create or replace function headrace.give_slots(slots int[], recipient int, actor text default null) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    here int;
    wrong headrace.slots;
begin
    perform headrace._check_access(null);
    here := headrace._lock_slots();
    if give_slots.recipient between 0 and (select h.stride - 1 from headrace.shard h) is not true then
        raise exception using errcode = 'QU001',
            message = format('shard %s cannot give slots to shard %s', here,
                             coalesce(give_slots.recipient::text, 'null'));
    elsif coalesce(cardinality(give_slots.slots), 0) = 0
          or exists (select from unnest(give_slots.slots) n where n is null or n not between 0 and 1023) then
        raise exception using errcode = 'QU001', message = 'a slot is a number from 0 to 1023';
    end if;
    select s.* into wrong from headrace.slots s
    where s.slot = any (give_slots.slots)
      and (s.home not in (here, give_slots.recipient) or s.home = here and s.origin is not null)
    order by s.slot limit 1;
    if wrong.home <> here then
        raise exception using errcode = 'QU060',
            message = format('slot %s has its home on shard %s: give it away there', wrong.slot, wrong.home),
            detail = format('slot %s, home %s, version %s, ask {}', wrong.slot, wrong.home, wrong.version);
    elsif found then
        raise exception using errcode = 'QU023',
            message = format('slot %s is still on its way from shard %s: end that move first', wrong.slot,
                             wrong.origin);
    end if;
    update headrace.slots s set home = give_slots.recipient, version = s.version + 1
    where s.slot = any (give_slots.slots) and s.home = here and give_slots.recipient <> here;
    if found then
        perform headrace._slots_changed();
        perform headrace._log_action(null, give_slots.actor, 'give_slots', give_slots.recipient::text,
                                     jsonb_build_object('slots', to_jsonb(give_slots.slots)));
    else
        perform headrace._confirm_stored();
    end if;
    return (select jsonb_agg(jsonb_build_object('slot', s.slot, 'version', s.version, 'asked', s.asked) order by s.slot)
            from headrace.slots s where s.slot = any (give_slots.slots));
end $$;
