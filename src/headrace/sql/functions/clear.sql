-- Takes away what a deleted queue still has, 1,000 at most of what waits and of dead letters; returns whether there is more to do at once.
-- What is in work is left until its lease ends. The chore is done when nothing is left and nobody can add to it.
create or replace function headrace.clear(c headrace.chores, q headrace.queues, t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'       -- tick waits for nobody; what is locked is taken next time
as $$
#variable_conflict use_column
declare
    taken headrace.taken[] := headrace.take_waiting(
        q, array(select d.event from headrace.deliveries d where d.queue = q.id and d.lease is null limit 1000));
    dead int;
begin
    if taken <> '{}' then
        perform headrace.note(q, t, 'CANCELLED', taken, c.actor, 'its queue was deleted');
    end if;
    delete from headrace.dead_letters x
    where (x.event, x.queue) in (select o.event, o.queue from headrace.dead_letters o where o.queue = q.id limit 1000);
    get diagnostics dead = row_count;
    if taken <> '{}' or dead > 0 then
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
