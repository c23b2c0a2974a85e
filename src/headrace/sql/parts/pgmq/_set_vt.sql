-- Makes messages visible at `vt`, or now where that is past, and returns them as they are then. A
-- message that was read here belongs to its reader until then, or is handed back; a waiting message
-- is delayed. A message that a worker of Headrace holds is skipped.
-- Concurrency: waits half a second for a session that has one locked, and raises QU023.
create or replace function pgmq._set_vt(
    kind text, q headrace.queues, ids bigint[], vt timestamptz
) returns setof pgmq.message_record
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
    t timestamptz := headrace._now();
    id bigint;
    claim headrace.leases;
    stood record;
    taken headrace.taken[];
begin
    for id in select distinct i from unnest(ids) i order by i loop
        -- The lease is locked first, then its deliveries, as everywhere.
        select l.* into claim from headrace.leases l
        where l.id = (select h.lease from headrace.held h where h.queue = q.id and h.event = id)
          and l.lenient and not l.reaped for update;
        select s.* into stood from headrace._event_states(q, array[id]) s where s.status in ('PENDING', 'PROCESSING');
        continue when not found;
        if stood.status = 'PROCESSING' then
            continue when claim.id is null;
            if vt > t then
                update headrace.leases l set until = vt, extended_at = t where l.id = claim.id;
            else
                taken := headrace._take_held(q, array[id], array[stood.attempts]);
                continue when taken = '{}';
                perform headrace._settle(q, t, 'release', taken, null, null, null);
                perform pgmq._drop_leases(array[claim.id]);
            end if;
        elsif vt > t or stood.next_retry_at is not null then
            taken := headrace._take_waiting(q, array[id]);
            continue when taken = '{}';
            perform headrace._requeue(q, t, taken, array[vt]);
        end if;
        return query select stood.id, stood.attempts, stood.created_at, stood.processing_started_at, greatest(vt, t),
                            case kind when 'own' then stood.payload
                                      else pgmq._envelope(q.space, stood.type, stood.payload, stood.details, stood.id,
                                                          stood.attempts, stood.created_at) end,
                            stood.details -> 'headers';
    end loop;
exception when lock_not_available then
    perform headrace._raise_busy(id);
end $$;
