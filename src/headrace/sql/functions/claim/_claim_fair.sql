-- Takes up to `most` deliveries for one claim, the most urgent priority first, and within it a fair
-- share of each route. Returns the deliveries, column by column, and the pairs of priority and
-- route as hints for the next claim.
--     keys         null: none has an ordering key
--     newest       the latest time at which one of them became ready
--     chunks       the number of their routes; 2 also where the order of one route must be restored
--     is_suspect   the claim is a suspect, alone
-- t: the start of the claim.
create or replace function headrace._claim_fair(
    q headrace.queues, types text[], tags text[], all_tags boolean, most int, suspects boolean, worker text,
    sweep boolean, t timestamptz, inout pairs headrace.hint[], out events bigint[], out created timestamptz[],
    out seqs bigint[], out routes bigint[], out priorities smallint[], out attempts int[], out failures smallint[],
    out crashes smallint[], out keys text[], out newest timestamptz, out is_suspect boolean, out chunks int
)
language plpgsql
as $$
declare
    weight constant int := greatest(1, most / 64);  -- a turn of a key takes statements: about 64 in a claim
    swept record; heads headrace.hint[];    -- where it looks: see _sweep
    calm int; lone record;    -- the pairs without suspects; a suspect
    i int; stop int; size int;
    pair headrace.hint; haul headrace.haul; several record; members bigint[];
    useless boolean := false; ticked boolean := false;
    got int := 0; rounds int := 0; naps int := 0;
begin
    chunks := 0; is_suspect := false;
    loop
        if sweep then
            swept := headrace._sweep(q, types, tags, all_tags, most, pairs);
            pairs := swept.pairs; heads := swept.heads;
        else
            heads := pairs;
        end if;
        -- The pairs of suspects are the last ones.
        calm := cardinality(pairs);
        while calm > 0 and pairs[calm].suspect loop
            calm := calm - 1;
        end loop;
        if suspects and calm < cardinality(pairs) then
            lone := headrace._claim_suspect(q, heads, calm, false, worker);
            useless := useless or lone.useless;
            haul := lone.haul;
            if haul.events is not null then
                pair := pairs[lone.place];
                events := haul.events; created := haul.created; attempts := haul.attempts; failures := haul.failures;
                routes := array[pair.route]; priorities := array[pair.priority]; crashes := array[lone.crashes];
                keys := haul.keys; newest := haul.newest; is_suspect := true;
                pairs[lone.place] := headrace._advance_hint(pair, haul.first, t);
                return;
            end if;
        end if;

        -- The most urgent priority first.
        i := 1;
        while i <= calm and got < most loop
            stop := i;
            while stop < calm and pairs[stop + 1].priority = pairs[i].priority loop
                stop := stop + 1;
            end loop;
            pair := pairs[i];
            if i = stop then
                haul := headrace._claim_route(q, pair, heads[i].low, most - got, weight);
                size := cardinality(haul.events);
                if size is not null then
                    members := array_fill(pair.route, array[size]);
                    pairs[i] := headrace._advance_hint(pair, haul.first, t);
                end if;
            else
                several := headrace._claim_routes(q, heads, i, stop, most - got, weight, t, pairs);
                pairs := several.pairs; haul := several.haul; members := several.members;
                useless := useless or several.useless;
                size := cardinality(haul.events);
            end if;
            useless := useless or size is null and haul.first is not null;
            if size is not null then
                -- Of several routes, or where turns of keys come after others, it must be sorted.
                chunks := chunks + 1 + (size > 1 and (i < stop or haul.keys is not null))::int;
                newest := greatest(newest, haul.newest);
                if haul.keys is not null or keys is not null then
                    keys := coalesce(keys, array_fill(null::text, array[got]))
                        || coalesce(haul.keys, array_fill(null::text, array[size]));
                    most := most - (weight - 1) * coalesce(cardinality(array_remove(haul.keys, null)), 0);
                end if;
                got := got + size;
                events := events || haul.events; created := created || haul.created; seqs := seqs || haul.seqs;
                attempts := attempts || haul.attempts; failures := failures || haul.failures;
                routes := routes || members;
                priorities := priorities || array_fill(pair.priority, array[size]);
            end if;
            i := stop + 1;
        end loop;
        exit when chunks > 0;
        if useless and rounds < 20 then
            -- The claim found only tokens that are gone now, or elsewhere: it looks behind them.
            useless := false; rounds := rounds + 1; sweep := true;
            continue;
        elsif naps < 3 and headrace._pack_is_being_opened(q, heads[:calm], false) then
            naps := naps + 1;
            perform pg_sleep(0.002);
            continue;
        end if;
        -- The claim found nothing: perhaps time has made something due.
        exit when not sweep or ticked or not headrace._tick_for_claim();
        ticked := true;
    end loop;
end $$;
