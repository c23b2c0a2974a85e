-- Reads up to qty messages and deletes them in the same call: delivery at most once. As in pgmq
-- read_ct is the number of earlier reads.
-- Raises 42P01, QU030.
create or replace function pgmq.pop(queue_name text, qty integer default 1) returns setof pgmq.message_record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    place record := pgmq._queue(pop.queue_name, works => true);
    popped pgmq.message_record[];
begin
    if place.kind = 'dead' then
        popped := array(select m from pgmq._read_letters(place.q, 1, pop.qty) m);
        perform pgmq._end('dead', place.q, array(select p.msg_id from unnest(popped) p));
    else
        popped := array(select m from pgmq._pop(place.kind, place.q, pop.qty) m);
    end if;
    return query select p.msg_id, p.read_ct - 1, p.enqueued_at, null::timestamptz, p.enqueued_at, p.message, p.headers
        from unnest(popped) p;
end $$;
