-- The queues of a namespace, as of a version, that take events of a type and its tags, sorted: the
-- content of a binding.
create or replace function headrace._queues_taking(
    in_namespace int, version int, type text, sorted_tags text[]
) returns int[]
language sql stable
as $$
    select coalesce(array_agg(q.id order by q.id), '{}') from headrace.queues q
    where q.namespace = in_namespace and q.version <= _queues_taking.version and q.takes
      and (q.types is null or _queues_taking.type like any (select headrace._like_pattern(p) from unnest(q.types) p))
      and (q.tags is null
           or case when q.all_tags then coalesce(sorted_tags, '{}') @> q.tags
                   else coalesce(sorted_tags, '{}') && q.tags end)
$$;
