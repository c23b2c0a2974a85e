-- Reads dead letters of a queue that contain `conditional`, the longest dead first, and hides them
-- until their timeout is over.
-- Concurrency: skips locked rows; of two readers of one letter the second finds it hidden and
-- leaves it out.
create or replace function pgmq._read_letters(
    q headrace.queues, vt integer, qty integer, conditional jsonb default '{}'
) returns setof pgmq.message_record
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
begin
    return query
    with picked as materialized (
        select x.event from headrace.dead_letters x
        left join pgmq._letters_read r on r.queue = x.queue and r.event = x.event
        where x.queue = q.id and (r.vt is null or r.vt <= t)
          and (coalesce(_read_letters.conditional, '{}') = '{}'
               or (select m.message @> _read_letters.conditional from pgmq._letter(q.space, x, 0, null, null) m))
        order by x.died_at, x.event limit greatest(_read_letters.qty, 0)
        for update of x skip locked
    ),
    seen as (
        insert into pgmq._letters_read as r (queue, event, read_ct, last_read_at, vt)
        select q.id, p.event, 1, t, t + make_interval(secs => _read_letters.vt) from picked p
        on conflict (queue, event) do update
        set read_ct = r.read_ct + 1, last_read_at = excluded.last_read_at, vt = excluded.vt where r.vt <= t
        returning r.*
    )
    select m.* from seen s join headrace.dead_letters x on x.queue = q.id and x.event = s.event
    cross join lateral pgmq._letter(q.space, x, s.read_ct, s.last_read_at, s.vt) m
    order by x.died_at, x.event;
end $$;
