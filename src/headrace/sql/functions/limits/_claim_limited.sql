-- Takes up to `most` deliveries for one claim, as _claim_fair does, from a queue with limits,
-- fair_by or aging, in the queue's order: see _claim_grouped for the arguments.
--     members   the groups with limits from which it took
--     look_in   where it took nothing: see lot
--     t         the time now: starts are dated after those that their groups have counted
create or replace function headrace._claim_limited(
    q headrace.queues, types text[], tags text[], all_tags boolean, most int, limited int, suspects boolean,
    worker text, sweep boolean, inout t timestamptz,
    inout pairs headrace.hint[], out events bigint[], out created timestamptz[],
    out seqs bigint[], out routes bigint[], out priorities smallint[], out attempts int[], out failures smallint[],
    out crashes smallint[], out keys text[], out newest timestamptz, out is_suspect boolean, out chunks int,
    out members headrace.membership[], out look_in float8
)
language plpgsql
as $$
declare
    won record;
begin
    if q."order" = 'oldest' then
        won := headrace._claim_limited_in_strict_order(q, types, tags, all_tags, most, limited, suspects, worker, t);
    else
        won := headrace._claim_grouped(q, types, tags, all_tags, most, limited, suspects, worker, sweep, t, pairs);
    end if;
    t := headrace._now();
    pairs := won.pairs; events := won.events; created := won.created; seqs := won.seqs; routes := won.routes;
    priorities := won.priorities; attempts := won.attempts; failures := won.failures; crashes := won.crashes;
    keys := won.keys; newest := won.newest; is_suspect := won.is_suspect; chunks := won.chunks;
    members := won.members;
    if events is null and won.look_at is not null then
        look_in := greatest(extract(epoch from won.look_at - t), 0);
    end if;
end $$;
