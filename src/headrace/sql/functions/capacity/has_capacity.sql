-- Whether every queue that takes events of this type and these tags (null: every queue of the
-- namespace) is below its high watermark and its limit, counted now: for publishers that wait for
-- capacity.
-- Raises QU010, and QU051 for a queue that is draining: waiting would not help.
create or replace function headrace.has_capacity(
    namespace text, type text default null, tags text[] default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    n headrace.namespaces;
    takers int[];
begin
    perform headrace._check_access(has_capacity.namespace);
    select * into n from headrace.namespaces o where o.name = has_capacity.namespace;
    if not found then
        perform headrace._raise_no_such_queue(has_capacity.namespace, 'main');
    elsif not n.guarded then
        return true;
    end if;
    takers := case when has_capacity.type is null then array(select q.id from headrace.queues q where q.namespace = n.id
                                                                 and q.takes)
                   else headrace._queues_taking(n.id, n.version, has_capacity.type, has_capacity.tags) end;
    perform headrace._store_depth(q, t) from headrace.queues q
    where q.id = any (takers) and coalesce(q.max_queue_depth, q.high_watermark) is not null;
    return not headrace._check_capacity(takers, false, t);
end $$;
