-- set_vt for dead letters.
create or replace function pgmq._hide_letters(
    q headrace.queues, ids bigint[], vt timestamptz
) returns setof pgmq.message_record
language sql
set search_path = pg_catalog, pg_temp
as $$
    with there as materialized (
        select x.event from headrace.dead_letters x where x.queue = (q).id and x.event = any (ids)
        order by x.event for update
    ),
    hidden as (
        insert into pgmq._letters_read as r (queue, event, read_ct, vt)
        select (q).id, h.event, 0, _hide_letters.vt from there h
        on conflict (queue, event) do update set vt = excluded.vt
        returning r.*
    )
    select m.* from hidden h join headrace.dead_letters x on x.queue = h.queue and x.event = h.event
    cross join lateral pgmq._letter((q).space, x, h.read_ct, h.last_read_at, h.vt) m
$$;
