-- Puts changed limits of a queue into effect, for deliveries in progress too; wakes sleeping
-- workers. Keys that wait for a rate look at the new one at once.
create or replace function headrace._limits_changed(q headrace.queues) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    update headrace.limit_keys k set due_at = '-infinity'
    where k.ctid = any (array(select o.ctid from headrace.limit_keys o where o.queue = q.id for update skip locked));
    perform headrace._release_limited_keys(headrace._now(), q.id);
    delete from headrace.limit_changes c where c.queue = q.id;  -- waits for a tick that counts now
    perform headrace._count_slots(q);
    if q.limits is not null then
        insert into headrace.limit_changes (queue, made_by) values (q.id, pg_current_xact_id());
    end if;
    perform headrace._wake(q.id);
end $$;
