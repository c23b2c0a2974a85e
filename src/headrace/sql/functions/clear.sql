-- Takes away what a deleted queue still has, 1,000 at most of what waits and of dead letters; returns whether there is more to do at once.
-- What is in work is left until its lease ends. The chore is done when nothing is left and nobody can add to it.
create or replace function headrace.clear(c headrace.chores, q headrace.queues, t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    -- what is locked is passed by, and taken next time
    waiting headrace.taken[] := headrace.take_many(q, 'ready', null, 'infinity', 1000)
                             || headrace.take_many(q, 'delayed', null, 'infinity', 1000);
    dead headrace.taken[] := headrace.take_letters(
        q, headrace.lock_letters(q, null, null, null, 'infinity', 1000, hollow => true));
begin
    if waiting <> '{}' or dead <> '{}' then
        perform headrace.note(q, t, 'CANCELLED', waiting, c.actor, 'its queue was deleted');
        perform headrace.note(q, t, 'PURGED', dead, c.actor, 'its queue was deleted');
        return true;
    end if;
    if c.waits_for = '{}' and not exists (select from headrace.deliveries d where d.queue = q.id) then
        delete from headrace.ready r where r.queue = q.id;  -- tokens
        delete from headrace.active a where a.queue = q.id;
        delete from headrace.depths d where d.queue = q.id;
        delete from headrace.chores o where o.queue = q.id;
    end if;
    return false;
end $$;
