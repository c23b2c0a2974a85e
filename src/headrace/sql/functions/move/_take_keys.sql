-- Takes, of ordering keys that have a token in one pair of priority and route, the deliveries whose
-- turn it is, if they were published by a time: at most `most`. As a claim does, so the keys are
-- active: _release_keys ends that. Removes useless tokens.
-- Concurrency: skips locked rows.
create or replace function headrace._take_keys(
    q headrace.queues, suspect boolean, priority smallint, route bigint, until timestamptz, most int
) returns headrace.taken[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    ahead constant timestamptz := headrace._now() + interval '1 minute';  -- see _take_route
    pair constant headrace.hint := row(suspect, priority, route, 0, null, null);
    token record;
    claimed record;
    taken headrace.taken[] := '{}';
begin
    q.limits := null;   -- nothing starts
    for token in
        select r.ctid, r.key from headrace.ready r
        where r.queue = q.id and r.suspect = _take_keys.suspect and r.priority = _take_keys.priority
          and r.route = _take_keys.route
          and r.key is not null
          and coalesce((select k.created_at from headrace.keyed k where k.queue = q.id and k.key = r.key
                        order by k.event limit 1), until) not between until + interval '1 microsecond' and ahead
        order by r.seq limit most
        for update of r skip locked
    loop
        delete from headrace.ready r where r.ctid = token.ctid;
        select * into claimed from headrace._claim_keys(q, pair, array[token.key]);
        taken := taken || array(
            select headrace._taken_delivery(k.event, k.attempts, k.created_at, k.failures, k.crashes, k.suspect, k.key)
            from unnest(claimed.turns) k);
        if claimed.busy <> '{}' then
            perform headrace._add_key_token(q.id, pair.suspect, pair.priority, pair.route, token.key);
        end if;
    end loop;
    return taken;
end $$;
