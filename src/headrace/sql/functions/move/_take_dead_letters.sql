-- Takes dead letters, which its caller has locked, on their way to another place or to none: with
-- their counters at zero, and as suspects if they crashed their workers. The item is the place in
-- `letters`.
create or replace function headrace._take_dead_letters(q headrace.queues, letters bigint[]) returns headrace.taken[]
language sql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with gone as (
        delete from headrace.dead_letters x where x.queue = q.id and x.event = any (letters)
        returning array_position(letters, x.event) as item, x.event, x.attempts, x.created_at,
            x.crashes > 0 as suspect, x.key
    )
    select coalesce(array_agg(headrace._taken_delivery(
        g.event, g.attempts, g.created_at, failures => 0::smallint, crashes => 0::smallint, suspect => g.suspect,
        key => g.key, item => g.item) order by g.item), '{}')
    from gone g
$$;
