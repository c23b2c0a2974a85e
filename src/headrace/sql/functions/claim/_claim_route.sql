-- Takes up to `wanted` deliveries of a pair of priority and route out of `ready`, the oldest first,
-- from `low` on. A pack is taken whole, or opened: the claim puts surplus members back, in packs of
-- the size that was asked for. The turn of an ordering key counts as `weight` deliveries: it takes
-- statements of its own, and a large claim must not last long.
-- Concurrency: skips locked rows. A claim that opens a pack hides the rest of it until it commits,
-- and then wakes sleepers.
create or replace function headrace._claim_route(
    q headrace.queues, pair headrace.hint, low bigint, wanted int, weight int
) returns headrace.haul
language plpgsql
as $$
#variable_conflict use_column
declare
    size int := 1;          -- the likely size of a row
    part record;
    haul headrace.haul;
    claimed record;
    turn headrace.keyed;
    turns headrace.keyed[] := '{}';
    busy text[] := '{}';    -- keys that other sessions work on
    useless boolean;
    ahead int := 4;         -- rows that are looked through for useless tokens
    got int := 0; rows int;
begin
    if wanted > 8 then
        select cardinality(r.pack) into size from headrace.ready r
        where r.queue = q.id and not r.suspect and r.priority = pair.priority and r.route = pair.route and r.seq >= low
        order by r.seq limit 1;
        if not found then
            return null;
        elsif wanted >= size then
            haul := headrace._claim_packs(q, pair, low, wanted, size);
            got := coalesce(cardinality(haul.events), 0);
        end if;
    end if;
    for round in 1..20 loop
        exit when got >= wanted;
        rows := ceil((wanted - got) / coalesce(size, 1)::float8);
        if rows = 1 then    -- the same for one, in half the time
            delete from headrace.ready r where r.ctid = (
                select p.ctid from headrace.ready p
                where p.queue = q.id and not p.suspect and p.priority = pair.priority and p.route = pair.route
                  and p.seq >= low
                order by p.seq limit 1
                for update skip locked)
            returning 1 as locked, r.seq as first,
                      case when r.key is null then coalesce(r.pack, array[r.event]) end as events,
                      array_fill(r.created_at, array[coalesce(cardinality(r.pack), 1)]) as created,
                      coalesce(r.pack, array[r.seq]) as seqs,
                      array_fill(r.attempts + 1, array[coalesce(cardinality(r.pack), 1)]) as attempts,
                      array_fill(r.failures, array[coalesce(cardinality(r.pack), 1)]) as failures,
                      case when r.key is not null then array[r.key] end as keys, 1 as tokens,
                      coalesce(r.ready_at, r.created_at) as newest
            into part;
        else
            part := headrace._take_ready(q, pair, low, rows, wanted - got, weight);
        end if;
        exit when part.locked is null or part.locked = 0;
        if part.events is not null then
            haul.events := haul.events || part.events; haul.created := haul.created || part.created;
            haul.seqs := haul.seqs || part.seqs;
            haul.attempts := haul.attempts || part.attempts; haul.failures := haul.failures || part.failures;
        end if;
        useless := false;
        if part.keys is not null then
            useless := part.tokens > cardinality(part.keys);
            select * into claimed from headrace._claim_keys(q, pair, part.keys);
            turns := turns || claimed.turns; busy := busy || claimed.busy;
            useless := useless or claimed.useless;
        end if;
        haul.newest := greatest(haul.newest, part.newest);
        if part.events is not null or useless or cardinality(turns) > 0 then
            haul.first := least(haul.first, part.first);
        end if;
        got := coalesce(cardinality(haul.events), 0) + cardinality(turns) * weight;
        exit when part.locked < rows;
        size := greatest(1, coalesce(cardinality(part.events), 0) / part.locked);
        if useless then
            ahead := least(ahead * 4, 1000);
            perform headrace._drop_useless_tokens(q, pair, low, ahead);
        end if;
    end loop;
    if busy <> '{}' then
        perform headrace._add_key_token(q.id, false, pair.priority, pair.route, k) from unnest(busy) k;
    end if;

    got := coalesce(cardinality(haul.events), 0) + cardinality(turns);
    if got > wanted then
        haul := headrace._put_back_surplus(q, pair, haul, cardinality(haul.events) - (got - wanted), wanted);
    end if;
    if cardinality(turns) > 0 then
        haul.keys := array_fill(null::text, array[coalesce(cardinality(haul.events), 0)]);
        foreach turn in array turns loop
            haul.events := haul.events || turn.event; haul.created := haul.created || turn.created_at;
            haul.seqs := haul.seqs || turn.event;
            haul.attempts := haul.attempts || turn.attempts + 1; haul.failures := haul.failures || turn.failures;
            haul.keys := haul.keys || turn.key;
        end loop;
    end if;
    return haul;
end $$;
