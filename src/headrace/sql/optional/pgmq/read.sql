-- Reads up to qty messages and hides them for vt seconds; read_ct is how often each was read, this time included. The oldest
-- come first; one that was read before joins at the tail when it is visible again.
-- Raises 42P01, QU001 (also for a condition on messages: there is no such filter here), QU030 outside READ COMMITTED.
create or replace function pgmq.read(queue_name text, vt integer, qty integer, conditional jsonb default '{}')
returns setof pgmq.message_record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    place record := pgmq._queue(read.queue_name);
begin
    if read.conditional <> '{}' then
        raise exception using errcode = '0A000', message = 'messages are not selected by what they contain',
            hint = 'a queue for each kind of message is';
    elsif place.kind = 'dead' then
        return query select * from pgmq._read_letters(place.q, read.vt, read.qty);
    else
        return query select * from pgmq._read(place.kind, place.q, read.vt, read.qty);
    end if;
end $$;
