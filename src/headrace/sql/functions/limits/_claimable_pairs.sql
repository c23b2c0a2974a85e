-- The pairs of priority and route from which a claim may take, those of suspects after the first
-- `calm`, and the groups with limits that they are in: those of the hints, or those that the queue
-- has now, see _pairs_with_room.
create or replace function headrace._claimable_pairs(
    q headrace.queues, types text[], tags text[], all_tags boolean, most int, suspects boolean, t timestamptz,
    by_hints boolean, inout pairs headrace.hint[], out calm int, out members headrace.membership[],
    out look_at timestamptz
)
language plpgsql
as $$
declare
    hints constant headrace.hint[] := pairs;
    watched bigint[];
    found_calm record;
    found_suspect record;
begin
    if by_hints then
        calm := cardinality(pairs);
        while calm > 0 and pairs[calm].suspect loop
            calm := calm - 1;
        end loop;
        if q.limits is not null then
            members := headrace._limited_groups(q, array(select p.route from unnest(pairs) p));
        end if;
        return;
    end if;
    if types is not null or tags is not null then
        watched := headrace._filtered_routes_with_work(q, types, tags, all_tags);
    end if;
    found_calm := headrace._pairs_with_room(q, false, watched, most, hints, t);
    pairs := found_calm.pairs;
    look_at := found_calm.look_at;
    calm := cardinality(pairs);
    if suspects then
        found_suspect := headrace._pairs_with_room(q, true, watched, 10, hints, t);
        pairs := pairs || found_suspect.pairs;
        look_at := least(look_at, found_suspect.look_at);
    end if;
    if q.limits is not null then
        members := headrace._limited_groups(q, array(select p.route from unnest(pairs) p));
        look_at := least(look_at, (select min(k.due_at) from headrace.limit_keys k where k.queue = q.id));
    end if;
end $$;
