-- The attempts, with null in the place of those whose claim is not the caller's: another worker
-- holds it, or it has another token. A worker or a token that is null is not checked. tokens: one
-- for each item, or one for all. An attempt that has ended has no claim any more and stays as it
-- is: _past_verdicts reports on it. An attempt belongs to one lease, and a lease keeps its worker
-- and its token: so this check needs no lock.
-- Raises QU001 for a claim without a token, where the queue requires one.
create or replace function headrace._proven_attempts(
    q headrace.queues, events bigint[], attempts int[], leases bigint[], workers text[], tokens text[]
) returns int[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    size constant int := cardinality(events);
    claims bigint[];
    located bigint[];
begin
    if cardinality(tokens) = 1 and size > 1 then
        tokens := array_fill(tokens[1], array[size]);
    end if;
    claims := array(
        select coalesce((select h.lease from headrace.held h where h.queue = q.id and h.event = i.event
                             and h.attempt = i.attempt), i.lease)
        from unnest(events, attempts, leases) with ordinality as i(event, attempt, lease, n) order by i.n);
    if array_position(claims, null) is not null then
        located := headrace._leases_of(q, '{}', events, attempts, claims);
    end if;
    if q.require_lease_token then
        perform headrace._raise_problem(headrace._lease_token_missing(q), n)
        from generate_series(1, size) n
        where tokens[n] is null and exists (
            select from headrace.leases l
            where l.id = coalesce(claims[n], located[n])
              and coalesce(get_bit(l.done, array_position(l.events, events[n]) - 1), 0) = 0)
        limit 1;
    end if;
    return array(
        select case when (
            select (i.worker is null or l.worker = i.worker) and (i.token is null or l.token::text = i.token)
            from headrace.leases l where l.id = coalesce(i.claim, i.located)) is not false then i.attempt end
        from unnest(attempts, claims, located, workers, tokens) with ordinality as i(attempt, claim, located,
            worker, token, n)
        where i.n <= size order by i.n);
end $$;
