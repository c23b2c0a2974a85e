-- Reads up to qty messages and hides them for vt seconds; read_ct is the number of reads of each,
-- this one included. The oldest come first; a message that was read before joins at the tail when
-- it is visible again.
-- conditional: only messages that contain it, see _read_matching.
-- Raises 42P01, QU001, QU030 outside READ COMMITTED.
create or replace function pgmq.read(queue_name text, vt integer, qty integer, conditional jsonb default '{}')
returns setof pgmq.message_record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    place record := pgmq._queue(read.queue_name, works => true);
begin
    if place.kind = 'dead' then
        return query select * from pgmq._read_letters(place.q, read.vt, read.qty, read.conditional);
    elsif read.conditional <> '{}' then
        return query select * from pgmq._read_matching(place.kind, place.q, read.vt, read.qty, read.conditional);
    else
        return query select * from pgmq._read(place.kind, place.q, read.vt, read.qty);
    end if;
end $$;
