-- A dead letter as a message: the event, why it died and when. failedAt is the time that the
-- consumer sent with it, else died_at.
create or replace function pgmq._letter(
    namespace text, x headrace.dead_letters, read_ct int, last_read_at timestamptz, vt timestamptz
) returns setof pgmq.message_record
language sql stable rows 1
set search_path = pg_catalog, pg_temp
as $$
    select x.event, read_ct, x.died_at, last_read_at, vt,
           jsonb_build_object(
               'originalEvent', pgmq._envelope(namespace, x.type, x.payload, x.details, x.event, x.attempts,
                                               x.created_at),
               'reason', x.reason, 'failedAt', coalesce(
                   (select r.failed_at from pgmq._letters_read r where r.queue = x.queue and r.event = x.event),
                   pgmq._iso(x.died_at)))
           || case when x.error is not null then jsonb_build_object('error', x.error) else '{}' end,
           x.details -> 'headers'
$$;
