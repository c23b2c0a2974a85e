-- Takes dead letters, which its caller has locked, on their way to another place or to none: with their counters at zero, and who
-- crashed his workers as a suspect. The item is the place in `letters`.
create or replace function headrace.take_letters(q headrace.queues, letters bigint[]) returns headrace.taken[]
language sql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with gone as (
        delete from headrace.dead_letters x where x.queue = q.id and x.event = any (letters)
        returning array_position(letters, x.event) as item, x.event, x.attempts, x.created_at, x.crashes > 0 as suspect, x.key
    )
    select coalesce(array_agg(row(g.item, g.event, g.attempts, g.created_at, 0, 0, g.suspect,
                                  null, null, null, null, g.key)::headrace.taken order by g.item), '{}')
    from gone g
$$;
