-- Ends messages and returns those it ended. A held message is completed, as if its holder had
-- finished it; a waiting message is cancelled; a dead letter is purged. Messages that do not exist,
-- or have ended, are skipped.
-- Concurrency: each message ends once, however many calls race; waits half a second for a session
-- that has one locked, and raises QU023.
create or replace function pgmq._end(kind text, q headrace.queues, ids bigint[]) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
    t timestamptz := headrace._now();
    held headrace.held[];
    ended bigint[] := '{}';
    stood record;
    taken headrace.taken[];
    is_missed boolean;
begin
    if kind = 'dead' then
        taken := headrace._take_dead_letters(q, array(
            select x.event from headrace.dead_letters x where x.queue = q.id and x.event = any (ids)
            order by x.event for update));
        perform headrace._log_moves(q, t, 'PURGED', taken, null, 'by pgmq');
        if taken = '{}' then
            perform headrace._confirm_stored();
        end if;
        return array(select k.event from unnest(taken) k);
    end if;

    if random() < 0.01 then
        perform pgmq._keep_up();
    end if;
    held := array(select h from headrace.held h where h.queue = q.id and h.event = any (ids) order by h.event);
    if held <> '{}' then
        ended := array(select h.event from unnest(held) h);
        ended := array(
            select i.event from unnest(ended) with ordinality as i(event, item)
            where i.item not in (
                select v.item
                from headrace.finish(q.space, q.name, ended, array(select h.attempt from unnest(held) h)) v));
        perform pgmq._drop_leases(array(select h.lease from unnest(held) h));
    end if;

    -- Messages that wait, are in a worker's batch, or moved between places a moment ago.
    for round in 1..3 loop
        is_missed := false;
        for stood in
            select s.id, s.status, s.attempts
            from headrace._event_states(q, array(select i from unnest(ids) i where i <> all (ended))) s
            where s.status in ('PENDING', 'PROCESSING') order by s.id
        loop
            taken := headrace._take_one(q, stood.id, stood.status, stood.attempts);
            if taken = '{}' then
                is_missed := true;
                continue;
            end if;
            if stood.status = 'PROCESSING' then
                perform headrace._settle(q, t, 'complete', taken, null, null, null);
            else
                perform headrace._log_moves(q, t, 'CANCELLED', taken, null, 'deleted by pgmq while it waited');
                perform headrace._release_keys(q, t, taken);
            end if;
            ended := ended || stood.id;
        end loop;
        exit when not is_missed;
    end loop;
    if ended = '{}' then
        perform headrace._confirm_stored();
    end if;
    return array(select i from unnest(ids) with ordinality as u(i, n) where i = any (ended) group by i order by min(n));
end $$;
