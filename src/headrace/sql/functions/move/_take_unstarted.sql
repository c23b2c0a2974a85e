-- Takes the delivery of an event out of the place in which it waits, if it was never claimed: the
-- place, and of one that was ready its position in the order of claims. place null: it waits
-- nowhere, or was claimed before. Only for deliveries that entered `ready` by themselves, not in a
-- pack.
-- Concurrency: never waits: a delivery that another session has locked is being claimed, or moved,
-- and is left alone. Looks in the places in the order in which a tick moves a delivery.
create or replace function headrace._take_unstarted(
    queue int, event bigint, out place text, out route bigint, out priority smallint, out seq bigint
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    delete from headrace.delayed d where d.ctid = (
        select w.ctid from headrace.delayed w
        where w.queue = _take_unstarted.queue and w.event = _take_unstarted.event and w.attempts = 0
        for update skip locked);
    if found then
        place := 'delayed';
        return;
    end if;
    delete from headrace.keyed k where k.ctid = (
        select w.ctid from headrace.keyed w
        where w.queue = _take_unstarted.queue and w.event = _take_unstarted.event and w.attempts = 0
        for update skip locked);
    if found then
        place := 'keyed';
        return;
    end if;
    delete from headrace.ready r where r.ctid = (
        select w.ctid from headrace.ready w
        where w.queue = _take_unstarted.queue and w.event = _take_unstarted.event and w.seq <> w.event
          and w.key is null and w.attempts = 0
        for update skip locked)
    returning 'ready', r.route, r.priority, r.seq
    into _take_unstarted.place, _take_unstarted.route, _take_unstarted.priority, _take_unstarted.seq;
end $$;
