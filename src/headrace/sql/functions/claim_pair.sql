-- Takes up to `wanted` deliveries of a pair of priority and route out of `ready`, the oldest first, from `low` on. A pack is
-- taken whole, or opened: what is more than wanted goes back, in packs of the size that was asked for.
-- The turn of an ordering key counts as `weight` deliveries: it takes statements of its own, and a large claim is not to last long.
-- Concurrency: skips what is locked. Whoever opens a pack hides the rest of it until it commits, and then wakes sleepers.
create or replace function headrace.claim_pair(q headrace.queues, pair headrace.hint, low bigint, wanted int, weight int) returns headrace.haul
language plpgsql
as $$
#variable_conflict use_column
declare
    size int := 1;          -- of a row, most likely
    rows int;
    part record;
    haul headrace.haul;
    claimed record;
    turn headrace.keyed;
    turns headrace.keyed[] := '{}';
    busy text[] := '{}';    -- keys that somebody else is at
    useless boolean;
    ahead int := 4;         -- rows that are looked through for useless tokens
    got int := 0;
    kept int;
begin
    if wanted > 8 then
        select cardinality(r.pack) into size from headrace.ready r
        where r.queue = q.id and not r.suspect and r.priority = pair.priority and r.route = pair.route and r.seq >= low
        order by r.seq limit 1;
        if not found then
            return null;
        elsif wanted >= size then
            haul := headrace.claim_packs(q, pair, low, wanted, size);
            got := coalesce(cardinality(haul.events), 0);
        end if;
    end if;
    for round in 1..20 loop
        exit when got >= wanted;
        rows := ceil((wanted - got) / coalesce(size, 1)::float8);
        if rows = 1 then    -- the same for one, in half the time
            delete from headrace.ready r where r.ctid = (
                select p.ctid from headrace.ready p
                where p.queue = q.id and not p.suspect and p.priority = pair.priority and p.route = pair.route and p.seq >= low
                order by p.seq limit 1
                for update skip locked)
            returning 1 as locked, r.seq as first, case when r.key is null then coalesce(r.pack, array[r.event]) end as events,
                      array_fill(r.created_at, array[coalesce(cardinality(r.pack), 1)]) as created,
                      coalesce(r.pack, array[r.seq]) as seqs,
                      array_fill(r.attempts + 1, array[coalesce(cardinality(r.pack), 1)]) as attempts,
                      array_fill(r.failures, array[coalesce(cardinality(r.pack), 1)]) as failures,
                      case when r.key is not null then array[r.key] end as keys, 1 as tokens, coalesce(r.ready_at, r.created_at) as newest
            into part;
        else
            with picked as materialized (
                select r.ctid, case when r.key is null then coalesce(cardinality(r.pack), 1) else weight end as size from headrace.ready r
                where r.queue = q.id and not r.suspect and r.priority = pair.priority and r.route = pair.route and r.seq >= low
                order by r.seq limit rows
                for update skip locked
            ),
            chosen as (
                select p.ctid, sum(p.size) over (rows unbounded preceding) - p.size as before from picked p
            ),
            gone as (
                delete from headrace.ready r
                where r.ctid = any (array(select c.ctid from chosen c where c.before < wanted - got))
                returning r.event, r.created_at, r.seq, r.attempts, r.failures, r.pack, r.key, r.ready_at
            ),
            member as (
                select g.event, g.created_at, g.seq as place, g.seq, g.attempts + 1 as attempt, g.failures from gone g where g.pack is null and g.key is null
                union all
                select m.event, g.created_at, g.seq, m.event, 1, 0::smallint from gone g cross join lateral unnest(g.pack) as m(event) where g.pack is not null
            )
            select (select count(*)::int from picked) as locked, (select min(g.seq) from gone g) as first,
                   array_agg(event) as events, array_agg(created_at) as created,
                   array_agg(seq) as seqs, array_agg(attempt) as attempts, array_agg(failures) as failures,
                   (select array_agg(k.key order by k.seq)
                    from (select g.key, min(g.seq) as seq from gone g where g.key is not null group by g.key) k) as keys,
                   (select count(*)::int from gone g where g.key is not null) as tokens,
                   (select max(coalesce(g.ready_at, g.created_at)) from gone g) as newest
            into part
            from (select * from member order by place, event) m;
        end if;
        exit when part.locked is null or part.locked = 0;
        if part.events is not null then
            haul.events := haul.events || part.events; haul.created := haul.created || part.created; haul.seqs := haul.seqs || part.seqs;
            haul.attempts := haul.attempts || part.attempts; haul.failures := haul.failures || part.failures;
        end if;
        useless := false;
        if part.keys is not null then
            useless := part.tokens > cardinality(part.keys);
            select * into claimed from headrace.claim_turns(q, pair, part.keys);
            turns := turns || claimed.turns;
            busy := busy || claimed.busy;
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
            -- Such tokens seldom come alone: a key that gets many at a time leaves one each. One whose key has a delivery in
            -- work is useless, because the end of that leaves another.
            ahead := least(ahead * 4, 1000);
            delete from headrace.ready r where r.ctid = any (array(
                select p.ctid from headrace.ready p
                where p.queue = q.id and not p.suspect and p.priority = pair.priority and p.route = pair.route
                  and p.seq between low and (
                      select max(l.seq) from (
                          select l.seq from headrace.ready l
                          where l.queue = q.id and not l.suspect and l.priority = pair.priority and l.route = pair.route and l.seq >= low
                          order by l.seq limit ahead) l)
                  and p.key is not null and (select true from headrace.active a where a.queue = q.id and a.key = p.key)
                for update skip locked));
        end if;
    end loop;
    if busy <> '{}' then
        perform headrace.leave_token(q.id, false, pair.priority, pair.route, k) from unnest(busy) k;
    end if;

    got := coalesce(cardinality(haul.events), 0) + cardinality(turns);
    if got > wanted then
        kept := cardinality(haul.events) - (got - wanted);
        insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
        select rest[1], haul.created[kept + 1], pair.route, rest[1], q.id, pair.priority, case when cardinality(rest) > 1 then rest end
        from generate_series(kept + 1, cardinality(haul.events), wanted) i
        cross join lateral (select haul.events[i:i + wanted - 1] as rest) r;
        haul.events := haul.events[:kept]; haul.created := haul.created[:kept]; haul.seqs := haul.seqs[:kept];
        haul.attempts := haul.attempts[:kept]; haul.failures := haul.failures[:kept];
        perform headrace.wake(q.id);
    end if;
    if cardinality(turns) > 0 then
        haul.keys := array_fill(null::text, array[coalesce(cardinality(haul.events), 0)]);
        foreach turn in array turns loop
            haul.events := haul.events || turn.event; haul.created := haul.created || turn.created_at; haul.seqs := haul.seqs || turn.event;
            haul.attempts := haul.attempts || turn.attempts + 1; haul.failures := haul.failures || turn.failures; haul.keys := haul.keys || turn.key;
        end loop;
    end if;
    return haul;
end $$;
