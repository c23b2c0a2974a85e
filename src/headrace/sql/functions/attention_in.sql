-- What needs somebody's attention now in these namespaces, as attention tells it, a hundred findings at most: of the others nothing is
-- looked at, and nothing takes their place. A namespace that is not there has none.
create or replace function headrace.attention_in(namespaces text[]) returns setof headrace.finding
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select headrace.admit(s) from unnest(attention_in.namespaces) s;
    select f.code, f.level, f.namespace, f.queue, f.about, f.since
    from (
        select distinct a.code, a.level, a.namespace, a.queue, a.about, a.since
        from headrace.namespaces n cross join lateral headrace.attention(n.name) a
        where n.name = any (attention_in.namespaces)
    ) f
    order by array_position('{critical,warning,notice}'::text[], f.level), f.since, f.namespace, f.queue, f.code, f.about
    limit 100
$$;
