-- The findings of attention in these namespaces, a hundred at most: the function does not read
-- other namespaces, so their findings take no place in the list. A namespace that does not exist
-- has none.
create or replace function headrace.attention_in(namespaces text[]) returns setof headrace.finding
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select headrace._check_access(s) from unnest(attention_in.namespaces) s;
    select f.code, f.level, f.namespace, f.queue, f.about, f.since
    from (
        select distinct a.code, a.level, a.namespace, a.queue, a.about, a.since
        from headrace.namespaces n cross join lateral headrace.attention(n.name) a
        where n.name = any (attention_in.namespaces)
    ) f
    order by array_position('{critical,warning,notice}'::text[], f.level), f.since, f.namespace, f.queue,
        f.code, f.about
    limit 100
$$;
