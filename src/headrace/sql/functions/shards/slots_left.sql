-- What is left here of slots that were given away: see give_slots. Repeat the call, with the waits_for
-- that it returned, until it has nothing to wait for and none is waiting, held or delayed; then
-- open_slots follows on the new home. A dead letter keeps nothing waiting: it stays here, and a redrive
-- hands it out here.
--     waits_for   transactions that began before the slots were known to be given, and may publish
--     knows_keys  whether events were published here with idempotency keys of these slots, in the
--                 time for which such keys are kept; told when the rest is over
create or replace function headrace.slots_left(
    slots int[], known text[] default null,
    out waits_for text[], out waiting bigint, out held bigint, out delayed bigint, out dead bigint,
    out knows_keys boolean
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace._check_access(null);
    waits_for := headrace._open_transactions(known);
    select u.waiting, u.held, u.delayed, u.dead into waiting, held, delayed, dead from headrace._slots_in_use(slots) u;
    if waits_for = '{}' and waiting + held + delayed = 0 then
        knows_keys := exists (
            select from headrace.idempotency i join headrace.namespaces n on n.id = i.namespace
            left join lateral (select e.key from headrace._stored_event(i.event, i.created_at) e) e on true
            where headrace._slot(n.name, coalesce(e.key, i.key)) = any (slots_left.slots));
    end if;
end $$;
