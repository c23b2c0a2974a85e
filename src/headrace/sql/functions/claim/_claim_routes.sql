-- Takes up to `room` deliveries of several pairs of priority and route, of one priority: first a
-- fair share of each, then of what is left. heads, pairs: see _sweep; of these it takes from `first`
-- to `last`. weight: see _claim_route.
--     members   the routes of the deliveries
--     useless   there was a token that was good for nothing
-- It begins at a random pair. Small shares of many pairs are taken in one statement; these pairs go
-- to the end, and the next claim begins with the others.
create or replace function headrace._claim_routes(
    q headrace.queues, heads headrace.hint[], first int, last int, room int, weight int, t timestamptz,
    inout pairs headrace.hint[], out haul headrace.haul, out members bigint[], out useless boolean
)
language plpgsql
as $$
declare
    size int := last - first + 1;
    many boolean := size > 8 and room < 16 * size;
    spin constant int := case when many then 0 else floor(random() * size) end;
    places int[] := array(select first + (n + spin) % size from generate_series(0, size - 1) n);
    pass int := 1;
    k int := 0;
    turned int := 0;
    wanted int;
    turns int;
    pair headrace.hint;
    part record;
    got headrace.haul;
    routes bigint[];
begin
    useless := false;
    while room > 0 loop
        if many then
            part := headrace._claim_shares(q, heads, places, room, t, pairs);
            pairs := part.pairs; places := part.left; got := part.haul; routes := part.members;
            turned := turned + part.visited;
            many := part.blocked = 0 and cardinality(places) > 8;
        else
            k := k + 1;
            if k > cardinality(places) then
                exit when pass = 2;
                pass := 2; k := 0;
                continue;
            end if;
            wanted := case when pass = 1 then ceil(room / (cardinality(places) + 1 - k)::float8) else room end;
            pair := pairs[places[k]];
            got := headrace._claim_route(q, pair, heads[places[k]].low, wanted, weight);
            routes := array_fill(pair.route, array[coalesce(cardinality(got.events), 0)]);
            if got.events is not null then
                pairs[places[k]] := headrace._advance_hint(pair, got.first, t);
            end if;
        end if;
        if got.events is null then
            useless := useless or got.first is not null;
            continue;
        end if;
        turns := coalesce(cardinality(array_remove(got.keys, null)), 0);
        if turns > 0 or haul.keys is not null then
            haul.keys := coalesce(haul.keys, array_fill(null::text, array[coalesce(cardinality(haul.events), 0)]))
                || coalesce(got.keys, array_fill(null::text, array[cardinality(got.events)]));
        end if;
        room := room - cardinality(got.events) - (weight - 1) * turns;
        haul.first := least(haul.first, got.first); haul.newest := greatest(haul.newest, got.newest);
        haul.events := haul.events || got.events; haul.created := haul.created || got.created;
        haul.seqs := haul.seqs || got.seqs; haul.attempts := haul.attempts || got.attempts;
        haul.failures := haul.failures || got.failures; members := members || routes;
    end loop;
    if turned > 0 then
        turned := case when turned < size then turned else floor(random() * size) end;
        pairs := pairs[:first - 1] || pairs[first + turned:last] || pairs[first:first + turned - 1] || pairs[last + 1:];
    end if;
end $$;
