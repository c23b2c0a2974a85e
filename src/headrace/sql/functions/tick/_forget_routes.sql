-- Removes routes that no event and no delivery has any more, at most `most`; returns whether there
-- may be more of them.
-- Concurrency: safe against a publisher that uses the route right now, without a lock. A publisher
-- takes the route from a binding that is at most 30 days old, and the publisher that makes a
-- binding ensures that the route's row is at most a day older (see _batch_headers). So an event is
-- never more than 31 days younger than the newest row of its route; and a row that is two days
-- older than that, counted from the oldest month that is kept, belongs to no event of any month,
-- committed or not. Carried events and dead letters have outlived their month.
create or replace function headrace._forget_routes(most int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    unused_since constant timestamptz := headrace._oldest_partition() - interval '33 days';
    forgotten int;
begin
    with outdated as materialized (
        select r.ctid from headrace.routes r
        where r.created_at < unused_since
          and (exists (select from headrace.routes n
                       where n.route = r.route and n.namespace = r.namespace and n.created_at > r.created_at)
               or not exists (select from headrace.events_carried c where c.route = r.route
                                  and c.namespace = r.namespace)
                  and not exists (select from headrace.dead_letters x where x.route = r.route
                                      and x.namespace = r.namespace))
        limit most
    )
    delete from headrace.routes r where r.ctid = any (array(select o.ctid from outdated o));
    get diagnostics forgotten = row_count;
    return forgotten = most;
end $$;
