-- Continues the chores of queues, a step for each; returns whether there is more to do at once.
-- First a chore waits, from tick to tick, for the transactions that were open when the queue was
-- made or deleted, at any isolation level: they publish without knowing of the change. (The first
-- tick that sees the chore lists the open transactions, so after the commit of the transaction that
-- made it; transactions that begin later know.) A failure raises a warning and is retried.
create or replace function headrace._tick_chores(t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    c headrace.chores;
    q headrace.queues;
    more boolean := false;
begin
    for c in
        select * from headrace.chores o
        where o.made_by is distinct from pg_current_xact_id_if_assigned()
        order by o.queue
        for update skip locked
    loop
        begin
            if c.waits_for is distinct from '{}' then
                c.waits_for := headrace._open_transactions(c.waits_for);
                update headrace.chores u set waits_for = c.waits_for where u.queue = c.queue;
            end if;
            select * into q from headrace.queues o where o.id = c.queue;
            if c.task = 'clear' then
                more := headrace._clear_deleted(c, q, t) or more;
            elsif c.waits_for = '{}' then
                more := headrace._fill_from_past(c, q, t) or more;
            end if;
        exception when others then
            if sqlstate <> '55P03' then
                raise warning 'headrace: to % the queue % has failed and will be tried again: %', c.task,
                    q.name, sqlerrm;
            end if;
        end;
    end loop;
    return more;
end $$;
