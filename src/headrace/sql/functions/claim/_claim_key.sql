-- Redeems a token: claims the first delivery of its key, unless one is in progress. The caller has
-- taken the token out of `ready`; verdict says what became of it:
--     claimed    `turn` is the delivery, and the key is active
--     dropped    the token was useless: the end of the delivery in progress leaves a new one, or the
--                key waits for its rate and gets one then: see _limited_key_verdict
--     moved      the key's first delivery is of another pair than the claim's: it has a token there
--                now
--     kept       another session is working on the key: the caller must put the token back
-- Concurrency: one claim of a key at a time: the unique key of `active` lets one through, also
-- where two claims see different first deliveries, because a publisher committed late. Waits for
-- the other claim as long as the caller's lock_timeout allows, and raises 55P03 then: see
-- _claim_keys, its caller.
create or replace function headrace._claim_key(
    q headrace.queues, pair headrace.hint, key text, out verdict text, out turn headrace.keyed
)
language plpgsql
as $$
#variable_conflict use_column
declare
    head headrace.keyed;
begin
    -- the insert would wait for the session that ends it
    if exists (select from headrace.active a where a.queue = q.id and a.key = _claim_key.key) then
        verdict := 'dropped';
        return;
    end if;
    select k.* into head from headrace.keyed k
    where k.queue = q.id and k.key = _claim_key.key
    order by k.event limit 1;
    if not found then
        verdict := 'dropped';
        return;
    elsif (head.suspect, head.priority, head.route) <> (pair.suspect, pair.priority, pair.route) then
        perform headrace._add_key_token(q.id, head.suspect, head.priority, head.route, _claim_key.key);
        perform headrace._wake(q.id);
        verdict := 'moved';
        return;
    end if;
    if q.limits is not null then
        verdict := headrace._limited_key_verdict(q, pair, _claim_key.key);
        if verdict is not null then
            return;
        end if;
    end if;
    insert into headrace.active (queue, key, event) values (q.id, _claim_key.key, head.event) on conflict do nothing;
    if not found then
        verdict := 'dropped';
        return;
    end if;
    -- The two looks had different snapshots: a delivery in progress at the first may be back now,
    -- and goes first.
    delete from headrace.keyed k
    where k.ctid = (
        select o.ctid from headrace.keyed o where o.queue = q.id and o.key = _claim_key.key
            and o.event = head.event for update skip locked)
      and head.event = (select min(o.event) from headrace.keyed o where o.queue = q.id and o.key = _claim_key.key);
    if found then
        verdict := 'claimed';
        turn := head;
    else    -- that, or another session is taking it away now
        delete from headrace.active a where a.queue = q.id and a.key = _claim_key.key;
        verdict := 'kept';
    end if;
end $$;
