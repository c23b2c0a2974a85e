-- Delivers the events of slots that have arrived, when the previous home has none left: see
-- slots_left. Repeat the call, with the waits_for that it returned (null at first), until it returns
-- an empty one: transactions that began before the first call may still hold keys back.
-- asks: whether publishers continue to ask the previous home about idempotency keys.
-- Concurrency: waits for another change of slots, at most ten seconds. Raises QU060 for a slot that has
-- another home.
create or replace function headrace.open_slots(
    slots int[], known text[] default null, asks boolean default true, actor text default null
) returns text[]
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    here int;
    wrong headrace.slots;
    waits_for text[];
begin
    perform headrace._check_access(null);
    here := headrace._lock_slots();
    select s.* into wrong from headrace.slots s where s.slot = any (open_slots.slots) and s.home <> here limit 1;
    if found then
        raise exception using errcode = 'QU060',
            message = format('slot %s has its home on shard %s', wrong.slot, wrong.home),
            detail = format('slot %s, home %s, version %s, ask {}', wrong.slot, wrong.home, wrong.version);
    end if;
    update headrace.slots s
    set asked = case when asks then s.asked else array_remove(s.asked, s.origin) end, origin = null
    where s.slot = any (open_slots.slots) and s.origin is not null;
    if found then
        perform headrace._slots_changed();
        perform headrace._log_action(null, open_slots.actor, 'open_slots', here::text,
                                     jsonb_build_object('slots', to_jsonb(open_slots.slots)));
        return null;
    end if;
    waits_for := headrace._open_transactions(known);
    if waits_for = '{}' then
        perform headrace._open_keys(open_slots.slots);
        perform headrace._confirm_stored();
    end if;
    return waits_for;
end $$;
