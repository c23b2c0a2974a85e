-- The queue and the kind of a pgmq queue name.
--     own    a queue that pgmq.create made
--     main   a namespace's main
--     dead   the dead letters of a namespace's main
-- Null, or with `needed` an error: it does not exist.
-- Raises 42P01, as pgmq does where a queue's table is missing, and 42501 to a role that is bound to
-- other namespaces.
-- works: the caller claims or ends messages. Raises QU001 where the queue requires lease tokens for
-- that.
create or replace function pgmq._queue(
    queue_name text, needed boolean default true, works boolean default false, out kind text, out q headrace.queues
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    home text := replace(substr(queue_name, 13), '-', '_');     -- after core_events_
    letters headrace.queues;
begin
    select o.* into q from headrace.queues o where o.space = 'pgmq' and o.name = lower(queue_name) and o.name <> 'main'
      and (not o.bound or headrace._has_access(o.space));
    if q.id is not null then
        kind := 'own';
    elsif starts_with(queue_name, 'core_events_') then
        select o.* into q from headrace.namespaces n join headrace.queues o on o.space = n.name and o.name = 'main'
        where replace(n.name, '-', '_') = home and n.name <> 'pgmq' and (not o.bound or headrace._has_access(o.space));
        select o.* into letters from headrace.namespaces n join headrace.queues o on o.space = n.name
            and o.name = 'main'
        where home like E'%\\_dlq' and replace(n.name, '-', '_') = left(home, -4) and n.name <> 'pgmq'
          and (not o.bound or headrace._has_access(o.space));
        if q.id is not null and letters.id is not null then
            raise exception using errcode = 'QU001', message = format(
                '%L is the queue of the namespace %L, and the dead letters of %L: which of them is not said',
                queue_name, q.space, letters.space);
        elsif q.id is not null then
            kind := 'main';
        elsif letters.id is not null then
            kind := 'dead';
            q := letters;
        end if;
    end if;
    if works and q.require_lease_token and kind <> 'dead' then
        raise exception using errcode = 'QU001', message = format(
            'the queue %L requires lease tokens, which pgmq has not: claim and end its events by headrace.poll and '
            'headrace.complete', queue_name);
    end if;
    if kind is null and not headrace._has_access('pgmq') then   -- the same whether one exists elsewhere or not
        raise exception using errcode = '42501',
            message = format('the role %I is not bound to a namespace that has the pgmq queue %L',
                             headrace._caller_role(), queue_name),
            hint = 'headrace.bind_role says where a role may work';
    elsif kind is null and needed then
        raise exception using errcode = '42P01', message = format('there is no pgmq queue %L', queue_name),
            hint = 'pgmq.create makes one';
    end if;
end $$;
