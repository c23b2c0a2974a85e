-- Takes up to `most` deliveries for one claim, as _claim_fair does, for a queue with limits,
-- fair_by or aging; at most `limited` of them are under a limit (null: `most`). members: the groups
-- with limits from which it took, which are locked now: see _take_slots. look_at: when it took
-- nothing, the time at which a rate lets the next delivery start; t: it may start now, but not one
-- more than `limited`; null: none may by time alone. Where the pairs of the hints give nothing,
-- because they are full by now, it looks at all of them.
create or replace function headrace._claim_grouped(
    q headrace.queues, types text[], tags text[], all_tags boolean, most int, limited int, suspects boolean,
    worker text, sweep boolean, t timestamptz,
    inout pairs headrace.hint[], out events bigint[], out created timestamptz[],
    out seqs bigint[], out routes bigint[], out priorities smallint[], out attempts int[], out failures smallint[],
    out crashes smallint[], out keys text[], out newest timestamptz, out is_suspect boolean, out chunks int,
    out members headrace.membership[], out look_at timestamptz
)
language plpgsql
as $$
declare
    weight constant int := greatest(1, most / 64);  -- as in _claim_fair
    places record; locked record; lone record; turn headrace.turn; rooms int[];
    pair headrace.hint; haul headrace.haul;
    low bigint; wanted int; size int; share int; begun int; i int; turns int;
    by_hints boolean := not sweep and pairs <> '{}'; useless boolean; ticked boolean := false;
    got int := 0; bound int := least(limited, most); rounds int := 0; naps int := 0;
begin
    chunks := 0; is_suspect := false;
    loop
        perform headrace._release_limited_keys(t, q.id);
        places := headrace._claimable_pairs(q, types, tags, all_tags, most, suspects, t, by_hints, pairs);
        pairs := places.pairs; look_at := places.look_at; members := places.members;
        locked := headrace._lock_limit_groups(q, members, t);
        newest := locked.at; rooms := locked.rooms; useless := false;
        if suspects and places.calm < cardinality(pairs) and bound > 0 then
            lone := headrace._claim_suspect(q, headrace._open_pairs(pairs, places.calm, members, rooms),
                                            places.calm, sweep, worker);
            useless := lone.useless;
            haul := lone.haul;
            if haul.events is not null then
                pair := pairs[lone.place]; crashes := array[lone.crashes]; keys := haul.keys;
                events := haul.events; created := haul.created; attempts := haul.attempts; failures := haul.failures;
                routes := array[pair.route]; priorities := array[pair.priority];
                newest := greatest(newest, haul.newest); is_suspect := true;
                return;
            end if;
        end if;
        for turn in select * from headrace._turns(q, pairs[:places.calm], members, t) loop
            exit when got >= most;
            if turn.groups_left is not null then
                share := ceil((most - got) / turn.groups_left::float8); begun := got;
            end if;
            wanted := least(most - got, case turn.part
                when 1 then ceil((share - got + begun) / turn.pairs_left::float8)
                when 2 then share - got + begun
                else most - got end);
            if turn.is_limited then
                foreach i in array coalesce(turn.limits, '{}') loop
                    wanted := least(wanted, rooms[i]);
                end loop;
                if wanted > bound then
                    wanted := bound; look_at := t;      -- at once, when the worker can start one
                end if;
            end if;
            pair := pairs[turn.place]; low := case when sweep then 0 else pair.low end;
            if turn.waiting_since is not null and wanted > 0 then
                wanted := headrace._count_waiting_since(q, pair, low, turn.waiting_since, wanted);
            end if;
            continue when wanted <= 0;
            haul := headrace._claim_route(q, pair, low, wanted, case when wanted > 64 then weight else 1 end);
            size := cardinality(haul.events);
            useless := useless or size is null and haul.first is not null;
            continue when size is null;
            chunks := chunks + 1; newest := greatest(newest, haul.newest);
            if haul.keys is not null or keys is not null then
                keys := coalesce(keys, array_fill(null::text, array[got]))
                    || coalesce(haul.keys, array_fill(null::text, array[size]));
                turns := coalesce(cardinality(array_remove(haul.keys, null)), 0);
                most := most - (weight - 1) * turns;
                chunks := case when size > 1 then 2 else chunks end;
            end if;
            got := got + size;
            events := events || haul.events; created := created || haul.created; seqs := seqs || haul.seqs;
            attempts := attempts || haul.attempts; failures := failures || haul.failures;
            routes := routes || array_fill(pair.route, array[size]);
            priorities := priorities || array_fill(pair.priority, array[size]);
            pairs[turn.place] := headrace._advance_hint(pair, haul.first, t);
            if turn.is_limited then
                bound := bound - size;
                foreach i in array coalesce(turn.limits, '{}') loop
                    rooms[i] := rooms[i] - size;
                end loop;
            end if;
        end loop;
        exit when got > 0;
        if by_hints then
            by_hints := false; continue;
        elsif useless and rounds < 20 then
            rounds := rounds + 1; sweep := true; continue;
        elsif naps < 10 and (locked.is_busy
                             or naps < 3 and headrace._pack_is_being_opened(q, pairs[:places.calm], sweep)) then
            naps := naps + 1;       -- another claim is at the same group or pack
            perform pg_sleep(0.002);
            continue;
        end if;
        exit when not sweep or ticked or not headrace._tick_for_claim();
        ticked := true;
    end loop;
end $$;
