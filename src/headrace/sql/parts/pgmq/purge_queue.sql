-- Ends every message of a queue, also those that were read here, and returns their number; messages
-- that a worker of Headrace holds stay. The log names the actor for each. All in one transaction:
-- headrace.purge does it in steps. Raises 42P01.
create or replace function pgmq.purge_queue(queue_name text) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    place record := pgmq._queue(purge_queue.queue_name);
    q headrace.queues := place.q;
    what text;
    started_at timestamptz;
    done bigint;
    more boolean;
    held headrace.held[];
    taken headrace.taken[];
    purged bigint := 0;
begin
    foreach what in array case place.kind when 'dead' then '{dead_letters}' else '{ready,delayed}'::text[] end loop
        started_at := null;
        done := 0;
        loop
            select p.started_at, p.done, p.more into started_at, done, more
            from headrace.purge(q.space, q.name, what, reason => 'pgmq.purge_queue', most => 10000,
                                started_at => started_at, done => done) p;
            exit when not more;
        end loop;
        purged := purged + done;
    end loop;
    if place.kind <> 'dead' then
        held := array(select h from headrace.held h join headrace.leases l on l.id = h.lease
                      where h.queue = q.id and l.lenient order by h.event);
        taken := headrace._take_held(q, array(select h.event from unnest(held) h),
                                     array(select h.attempt from unnest(held) h));
        perform headrace._log_moves(q, headrace._now(), 'CANCELLED', taken, null, 'pgmq.purge_queue');
        perform headrace._release_keys(q, headrace._now(), taken);
        perform pgmq._drop_leases(array(select h.lease from unnest(held) h));
        purged := purged + cardinality(taken);
    end if;
    return purged;
end $$;
