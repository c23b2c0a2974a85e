-- Handles a message that a consumer sends to the dead letters because it could not handle it: the
-- event that the consumer read (originalEvent.messageId) becomes a dead letter with its reason,
-- error and failedAt. The consumer's delete, which comes next, finds nothing left to do. Returns
-- the event's id.
-- Raises QU001 when the message names no event that is held, QU020 when another consumer holds it
-- by now.
create or replace function pgmq._bury(q headrace.queues, letter jsonb) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    id constant bigint := case when letter #>> '{originalEvent,messageId}' ~ E'^\\d{1,18}$'
                               then (letter #>> '{originalEvent,messageId}')::bigint end;
    held headrace.held;
    failure constant jsonb := jsonb_build_object(
        'action', 'fail', 'reason', left(coalesce(letter ->> 'reason', 'Handler error'), 1000), 'error',
        coalesce(letter ->> 'error', ''));
begin
    perform pgmq._check_time('failedAt', letter -> 'failedAt');
    select h.* into held from headrace.held h where h.queue = q.id and h.event = id;
    if not found then
        raise exception using errcode = 'QU001',
            message = 'originalEvent.messageId names no message of this namespace that a reader holds',
            hint = 'a dead letter is an event that died: send it here before its visibility timeout is over';
    end if;
    perform headrace._raise_unless_counted(v) from headrace.finish(
        q.space, q.name, array[id], array[held.attempt], others => jsonb_build_object('1', failure)) v;
    if letter ->> 'failedAt' is not null then
        insert into pgmq._letters_read (queue, event, read_ct, vt, failed_at)
        values (q.id, id, 0, headrace._now(), letter ->> 'failedAt')
        on conflict (queue, event) do update set failed_at = excluded.failed_at;
    end if;
    perform pgmq._drop_leases(array[held.lease]);
    return id;
end $$;
