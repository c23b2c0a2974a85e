-- What a token is good for: claims the first delivery of its key, unless one is in work. Returns null and forgets the token
-- when it is good for nothing, because whoever ends what is in work leaves a new one. A delivery of another pair than
-- the claim's gets a token there.
-- Concurrency: one claim of a key at a time; a token that cannot be looked into now stays. Waits for nobody.
create or replace function headrace.claim_turn(q headrace.queues, pair headrace.hint, key text) returns headrace.keyed
language plpgsql
as $$
#variable_conflict use_column
declare
    turn headrace.keyed;
begin
    if not pg_try_advisory_xact_lock(1212433733, hashtext(q.id || ' ' || claim_turn.key)) then
        perform headrace.leave_token(q.id, pair.suspect, pair.priority, pair.route, claim_turn.key);
        return null;
    elsif exists (select from headrace.active a where a.queue = q.id and a.key = claim_turn.key) then
        return null;
    end if;
    select k.* into turn from headrace.keyed k
    where k.queue = q.id and k.key = claim_turn.key
    order by k.event limit 1;
    if not found then
        return null;
    elsif (turn.suspect, turn.priority, turn.route) <> (pair.suspect, pair.priority, pair.route) then
        perform headrace.leave_token(q.id, turn.suspect, turn.priority, turn.route, claim_turn.key);
        return null;
    end if;
    perform from headrace.keyed k where k.queue = q.id and k.key = claim_turn.key and k.event = turn.event for update skip locked;
    if not found then   -- somebody is just taking it away
        perform headrace.leave_token(q.id, pair.suspect, pair.priority, pair.route, claim_turn.key);
        return null;
    end if;
    delete from headrace.keyed k where k.queue = q.id and k.key = claim_turn.key and k.event = turn.event;
    insert into headrace.active (queue, key, event) values (q.id, claim_turn.key, turn.event);
    return turn;
end $$;
