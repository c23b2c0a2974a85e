-- The pairs of priority and route of a queue that have work for a claim with this filter, the pairs
-- of suspects last. hints: those of the claim before.
create or replace function headrace._sweep(
    q headrace.queues, types text[], tags text[], all_tags boolean, most int, hints headrace.hint[]
) returns headrace.hint[]
language plpgsql
as $$
declare
    watched bigint[];
begin
    if types is not null or tags is not null then
        watched := headrace._filtered_routes_with_work(q, types, tags, all_tags);
    end if;
    return headrace._routes_with_work(q, false, watched, most, hints)
        || headrace._routes_with_work(q, true, watched, 10, hints);
end $$;
