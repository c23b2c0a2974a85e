-- Keeps the first `kept` deliveries of a claim's haul and puts the others back, in packs of `size`;
-- returns the kept ones. Wakes a sleeper: until the claim commits, no other session sees the
-- returned packs.
create or replace function headrace._put_back_surplus(
    q headrace.queues, pair headrace.hint, haul headrace.haul, kept int, size int
) returns headrace.haul
language plpgsql
as $$
begin
    insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
    select rest[1], haul.created[kept + 1], pair.route, rest[1], q.id, pair.priority,
           case when cardinality(rest) > 1 then rest end
    from generate_series(kept + 1, cardinality(haul.events), size) i
    cross join lateral (select haul.events[i:i + size - 1] as rest) r;
    haul.events := haul.events[:kept];
    haul.created := haul.created[:kept];
    haul.seqs := haul.seqs[:kept];
    haul.attempts := haul.attempts[:kept];
    haul.failures := haul.failures[:kept];
    perform headrace._wake(q.id);
    return haul;
end $$;
