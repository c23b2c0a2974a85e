-- What a pgmq queue is here: a queue, and its kind.
--     own    one that pgmq.create made        main    a namespace's main        dead    the dead letters of a namespace's main
-- Null, or with `needed` an error: there is none. Raises 42P01, as pgmq does where a queue's table is missing.
create or replace function pgmq._queue(queue_name text, needed boolean default true, out kind text, out q headrace.queues)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    home text := replace(substr(queue_name, 13), '-', '_');     -- after core_events_
    letters headrace.queues;
begin
    select o.* into q from headrace.queues o where o.space = 'pgmq' and o.name = lower(queue_name) and o.name <> 'main';
    if q.id is not null then
        kind := 'own';
    elsif starts_with(queue_name, 'core_events_') then
        select o.* into q from headrace.namespaces n join headrace.queues o on o.space = n.name and o.name = 'main'
        where replace(n.name, '-', '_') = home and n.name <> 'pgmq';
        select o.* into letters from headrace.namespaces n join headrace.queues o on o.space = n.name and o.name = 'main'
        where home like E'%\\_dlq' and replace(n.name, '-', '_') = left(home, -4) and n.name <> 'pgmq';
        if q.id is not null and letters.id is not null then
            raise exception using errcode = 'QU001', message = format(
                '%L is the queue of the namespace %L, and the dead letters of %L: which of them is not said', queue_name, q.space, letters.space);
        elsif q.id is not null then
            kind := 'main';
        elsif letters.id is not null then
            kind := 'dead';
            q := letters;
        end if;
    end if;
    if q.bound then
        perform headrace.admit(q.space);
    end if;
    if kind is null and needed then
        raise exception using errcode = '42P01', message = format('there is no pgmq queue %L', queue_name), hint = 'pgmq.create makes one';
    end if;
end $$;
