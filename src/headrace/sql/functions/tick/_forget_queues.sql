-- Removes the rest of queues and namespaces that were deleted and cleared, in steps of `most` rows;
-- returns whether there may be more. At once: rows that only the queue itself needed (totals,
-- saved_states, unhandled, depths). The rows that name them stay as long as the log may mention
-- them, that is until retention drops the month in which they were deleted; then these rows go,
-- with all else that is stored by queue or namespace: stats, moments, history, progress,
-- recoveries, imports; routes, bindings, idempotency keys, nodes, instances.
-- Concurrency: no session can name a deleted queue, and nothing refers to it once its chore is
-- done: see _clear_deleted.
create or replace function headrace._forget_queues(most int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    gone constant timestamptz := headrace._oldest_partition();
    deleted int[];
    spaces int[];
    removed int := 0;
    size int;
begin
    deleted := array(
        select q.id from headrace.queues q
        where q.space is null and not exists (select from headrace.chores c where c.queue = q.id) order by q.id);
    delete from headrace.totals o where o.queue = any (deleted);
    delete from headrace.saved_states s where s.queue = any (deleted);
    delete from headrace.unhandled u where u.queue = any (deleted);
    delete from headrace.depths d where d.queue = any (deleted);

    deleted := array(
        select q.id from headrace.queues q
        where q.id = any (deleted) and q.deleted_at < gone and headrace._queue_is_empty(q) order by q.id
        limit least(most, 100));
    delete from headrace.moments m where m.queue = any (deleted);
    delete from headrace.history h where h.queue = any (deleted);
    delete from headrace.progress p where p.queue = any (deleted);
    delete from headrace.recoveries r where r.queue = any (deleted);
    if deleted <> '{}' then     -- without an index: it is rare
        delete from headrace.imports i where i.queue = any (deleted);
        delete from headrace.imported m where m.queue = any (deleted);
    end if;
    delete from headrace.stats s
    where s.ctid = any (array(select o.ctid from headrace.stats o where o.queue = any (deleted) limit most));
    get diagnostics size = row_count;
    removed := removed + size;
    if size < most then
        delete from headrace.queues q where q.id = any (deleted);
        removed := removed + cardinality(deleted);
    end if;

    spaces := array(
        select n.id from headrace.namespaces n
        where n.name is null and n.deleted_at < gone and not exists (select from headrace.queues q
                                                                     where q.namespace = n.id)
        order by n.id limit least(most, 100));
    if spaces <> '{}' then
        delete from headrace.nodes o where o.namespace = any (spaces);
        delete from headrace.instances i where i.namespace = any (spaces);
        delete from headrace.scheduled_tasks s where s.namespace = any (spaces);
        delete from headrace.bindings b where b.namespace = any (spaces);
        delete from headrace.idempotency i where i.ctid = any (array(
            select o.ctid from headrace.idempotency o where o.namespace = any (spaces) limit most));
        get diagnostics size = row_count;
        removed := removed + size;
        delete from headrace.routes r where r.ctid = any (array(
            select o.ctid from headrace.routes o where o.namespace = any (spaces) limit most - size));
        get diagnostics size = row_count;
        removed := removed + size;
        delete from headrace.namespaces n
        where n.id = any (spaces)
          and not exists (select from headrace.routes r where r.namespace = n.id)
          and not exists (select from headrace.idempotency i where i.namespace = n.id);
        get diagnostics size = row_count;
        removed := removed + size;
    end if;
    return removed > 0;
end $$;
