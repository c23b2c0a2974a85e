-- Takes, of ordering keys that have a token in one pair of priority and route, the deliveries whose turn it is, if they were published
-- by a time: at most `most`. As a claim does, so the keys are active: pass_on ends that. Tokens that are good for nothing go.
-- Concurrency: passes by what is locked.
create or replace function headrace.take_turns(
    q headrace.queues, suspect boolean, priority smallint, route bigint, until timestamptz, most int
) returns headrace.taken[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    ahead constant timestamptz := headrace.now() + interval '1 minute';  -- see take_pair
    pair constant headrace.hint := row(suspect, priority, route, 0, null, null);
    token record;
    claimed record;
    taken headrace.taken[] := '{}';
begin
    for token in
        select r.ctid, r.key from headrace.ready r
        where r.queue = q.id and r.suspect = take_turns.suspect and r.priority = take_turns.priority and r.route = take_turns.route
          and r.key is not null
          and coalesce((select k.created_at from headrace.keyed k where k.queue = q.id and k.key = r.key order by k.event limit 1), until) not between until + interval '1 microsecond' and ahead
        order by r.seq limit most
        for update of r skip locked
    loop
        delete from headrace.ready r where r.ctid = token.ctid;
        select * into claimed from headrace.claim_turns(q, pair, array[token.key]);
        taken := taken || array(
            select row(0, k.event, k.attempts, k.created_at, k.failures, k.crashes, k.suspect, null, null, null, null, k.key)::headrace.taken
            from unnest(claimed.turns) k);
        if claimed.busy <> '{}' then
            perform headrace.leave_token(q.id, pair.suspect, pair.priority, pair.route, token.key);
        end if;
    end loop;
    return taken;
end $$;
