-- Takes the first packs in a pair of priority and route, from `low` on, as long as they are wanted
-- whole: the rows that _claim_route would take, without a look at their members. `size`: the size
-- of the first pack.
-- Concurrency: skips locked rows.
create or replace function headrace._claim_packs(
    q headrace.queues, pair headrace.hint, low bigint, wanted int, size int
) returns headrace.haul
language plpgsql
as $$
#variable_conflict use_column
declare
    taken record;
    events bigint[] := '{}';
    created timestamptz[] := '{}';
    haul headrace.haul;
begin
    for taken in
        with picked as materialized (
            select r.ctid, r.pack is not null as is_pack, coalesce(cardinality(r.pack), 1) as size from headrace.ready r
            where r.queue = q.id and not r.suspect and r.priority = pair.priority and r.route = pair.route
              and r.seq >= low
            order by r.seq limit wanted / _claim_packs.size
            for update skip locked
        ),
        summed as (
            select p.ctid, bool_and(p.is_pack) over w and sum(p.size) over w <= wanted as is_wanted
            from picked p window w as (rows unbounded preceding)
        ),
        gone as (
            delete from headrace.ready r
            where r.ctid = any (array(select s.ctid from summed s where s.is_wanted))
            returning r.seq, r.created_at, r.pack
        )
        select * from gone order by seq
    loop
        events := events || taken.pack;
        created := created || array_fill(taken.created_at, array[cardinality(taken.pack)]);
        haul.newest := greatest(haul.newest, taken.created_at);
    end loop;
    if events <> '{}' then
        haul.first := events[1];
        haul.events := events;
        haul.created := created;
        haul.seqs := events;
        haul.attempts := array_fill(1, array[cardinality(events)]);
        haul.failures := array_fill(0::smallint, array[cardinality(events)]);
    end if;
    return haul;
end $$;
