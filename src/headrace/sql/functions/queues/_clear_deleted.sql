-- Removes the rest of a deleted queue, at most 1,000 waiting deliveries and 1,000 dead letters;
-- returns whether there is more to do at once. Deliveries in progress stay until their lease ends.
-- The chore is done when nothing is left and no transaction can add to it.
create or replace function headrace._clear_deleted(c headrace.chores, q headrace.queues, t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    -- locked rows are skipped, and taken by the next call
    waiting headrace.taken[] := headrace._take_many(q, 'ready', null, 'infinity', 1000)
                             || headrace._take_many(q, 'delayed', null, 'infinity', 1000);
    dead headrace.taken[] := headrace._take_dead_letters(
        q, headrace._lock_dead_letters(q, null, null, null, 'infinity', 1000, hollow => true));
begin
    if waiting <> '{}' or dead <> '{}' then
        perform headrace._log_moves(q, t, 'CANCELLED', waiting, c.actor, 'its queue was deleted');
        perform headrace._log_moves(q, t, 'PURGED', dead, c.actor, 'its queue was deleted');
        return true;
    end if;
    if c.waits_for = '{}' and not exists (select from headrace.deliveries d where d.queue = q.id) then
        delete from headrace.ready r where r.queue = q.id;  -- tokens
        delete from headrace.active a where a.queue = q.id;
        delete from headrace.depths d where d.queue = q.id;
        delete from headrace.limit_slots s where s.queue = q.id;
        delete from headrace.limit_groups g where g.queue = q.id;
        delete from headrace.limit_keys k where k.queue = q.id;
        delete from headrace.limit_changes c where c.queue = q.id;
        delete from headrace.chores o where o.queue = q.id;
    end if;
    return false;
end $$;
