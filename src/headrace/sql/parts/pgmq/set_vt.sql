-- Hides messages until vt, a time or a number of seconds from now, and returns those that exist; 0
-- makes them visible. See _set_vt. Raises 42P01, QU001, QU023.
create or replace function pgmq.set_vt(
    queue_name text, msg_ids bigint[], vt timestamptz
) returns setof pgmq.message_record
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    place record := pgmq._queue(set_vt.queue_name, works => true);
begin
    if set_vt.vt is null or set_vt.vt > headrace._now() + interval '100 years' then
        raise exception using errcode = 'QU001', message = 'a message is hidden for a hundred years at most';
    elsif place.kind = 'dead' then
        return query select * from pgmq._hide_letters(place.q, set_vt.msg_ids, set_vt.vt);
    else
        return query select * from pgmq._set_vt(place.kind, place.q, set_vt.msg_ids, set_vt.vt);
    end if;
end $$;

create or replace function pgmq.set_vt(queue_name text, msg_ids bigint[], vt integer) returns setof pgmq.message_record
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select *
    from pgmq.set_vt(set_vt.queue_name, set_vt.msg_ids, headrace._now() + make_interval(secs => set_vt.vt)) $$;

create or replace function pgmq.set_vt(queue_name text, msg_id bigint, vt timestamptz) returns setof pgmq.message_record
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq.set_vt(set_vt.queue_name, array[set_vt.msg_id], set_vt.vt) $$;

create or replace function pgmq.set_vt(queue_name text, msg_id bigint, vt integer) returns setof pgmq.message_record
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select * from pgmq.set_vt(set_vt.queue_name, array[set_vt.msg_id], set_vt.vt) $$;
