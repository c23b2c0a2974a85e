-- The events of a plain claim, as poll_batch returns them: a row for each kind. Nothing, if one of
-- them is not stored in its month. Runs under the settings of its caller.
create or replace function headrace._claimed_by_kind(lot headrace.lot) returns setof headrace.alike
language plpgsql
as $$
#variable_conflict use_column
declare
    at_once constant boolean := lot.created[1] = all (lot.created);     -- all were published at one moment
begin
    return query
    select g.ids, g.payloads, g.details, g.type, g.tags, 1, g.priority, 0::smallint, 0::smallint,
           g.max_retries, g.created,
           lot.lease, lot.held, lot.until, case when row_number() over () = 1 then lot.hints end,
           lot.lease_token, lot.picked_at, null::float8
    from (
        select array_agg(e.id) as ids, json_agg(e.payload)::text as payloads,
               (json_agg(e.details) filter (where e.details is not null))::text as details,
               e.type, e.tags, e.priority, coalesce(e.max_retries, lot.max_retries) as max_retries,
               case when at_once then timestamptz_send(lot.created[1])
                    else string_agg(case when not at_once then timestamptz_send(e.created_at) end,
                                    '') end as created,
               sum(count(*)) over () as total
        from (
            select e.id, e.created_at, e.payload, e.details, e.type, e.tags, e.max_retries, e.priority
            from headrace.events e
            where e.id = any (lot.events)
              and e.created_at between (select min(c) from unnest(lot.created) c)
                  and (select max(c) from unnest(lot.created) c)
            order by e.id
        ) e
        group by e.type, e.tags, e.priority, e.max_retries, e.details is null,
                 case when pg_column_size(e.payload) > 2000 then e.id end
        order by e.priority, min(e.id)
    ) g
    where g.total = cardinality(lot.events);
end $$;
