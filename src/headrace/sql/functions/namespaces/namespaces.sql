-- The namespaces, by name: their settings, and how many queues they have.
create or replace function headrace.namespaces()
returns table (name text, unhandled text, metadata jsonb, queues bigint, created_at timestamptz,
               unhandled_after interval)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select n.name, n.unhandled, headrace._readable_json(n.metadata), (select count(*) from headrace.queues q
                                                                      where q.space = n.name), n.created_at,
           least(n.unhandled_after, interval '100 years')
    from headrace.namespaces n where n.name is not null and (not n.bound or headrace._has_access(n.name))
    order by n.name
$$;
