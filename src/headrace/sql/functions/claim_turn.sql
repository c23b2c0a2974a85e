-- What a token is good for: claims the first delivery of its key, unless one is in work. The caller has taken the token out of
-- `ready`; verdict says what became of it:
--     claimed    `turn` is the delivery, and the key is active
--     dropped    it was good for nothing, because whoever ends what is in work leaves a new one
--     moved      the key's first delivery is of another pair than the claim's: it has a token there now
--     kept       somebody is at the key this moment: the caller must put the token back
-- Concurrency: one claim of a key at a time: the unique key of `active` lets one through, also where two see another first delivery, because a
-- publisher committed late. Waits for the other as long as the lock_timeout of its caller allows, and raises 55P03 then: see claim_turns, which is
-- how it is called.
create or replace function headrace.claim_turn(
    q headrace.queues, pair headrace.hint, key text, out verdict text, out turn headrace.keyed
)
language plpgsql
as $$
#variable_conflict use_column
declare
    head headrace.keyed;
begin
    if exists (select from headrace.active a where a.queue = q.id and a.key = claim_turn.key) then   -- the insert would wait for who ends it
        verdict := 'dropped';
        return;
    end if;
    select k.* into head from headrace.keyed k
    where k.queue = q.id and k.key = claim_turn.key
    order by k.event limit 1;
    if not found then
        verdict := 'dropped';
        return;
    elsif (head.suspect, head.priority, head.route) <> (pair.suspect, pair.priority, pair.route) then
        perform headrace.leave_token(q.id, head.suspect, head.priority, head.route, claim_turn.key);
        perform headrace.wake(q.id);
        verdict := 'moved';
        return;
    end if;
    insert into headrace.active (queue, key, event) values (q.id, claim_turn.key, head.event) on conflict do nothing;
    if not found then
        verdict := 'dropped';
        return;
    end if;
    -- The looks were not one: what was in work at the first may be back now, and goes first.
    delete from headrace.keyed k
    where k.ctid = (
        select o.ctid from headrace.keyed o where o.queue = q.id and o.key = claim_turn.key and o.event = head.event for update skip locked)
      and head.event = (select min(o.event) from headrace.keyed o where o.queue = q.id and o.key = claim_turn.key);
    if found then
        verdict := 'claimed';
        turn := head;
    else    -- that, or somebody is just taking it away
        delete from headrace.active a where a.queue = q.id and a.key = claim_turn.key;
        verdict := 'kept';
    end if;
end $$;
