-- Moves headrace.ids past every number in the tables, and returns that number; null: the sequence
-- was past them already. For use after a restore of a partial dump, and when a copy by logical
-- replication takes over: see ids_behind.
-- actor: for the log, see _log_action. The default is the caller's role.
-- Concurrency: waits ten seconds for open transactions that have drawn a number (55P03); a session
-- that draws one meanwhile waits until this commits. The sequence never goes back.
create or replace function headrace.repair_ids(actor text default null) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
declare
    highest bigint;
begin
    perform headrace._check_access(null);
    -- This changes nothing, and it blocks every session that draws a number: between a look and a
    -- setval the sequence might have come further.
    alter sequence headrace.ids no cycle;
    highest := greatest(
        headrace.ids_behind(), (select max(r.seq) from headrace.ready r), (select max(d.event) from headrace.delayed d),
        (select max(x.event) from headrace.dead_letters x));
    if highest is null or highest <= headrace._last_drawn_id() then
        return null;
    end if;
    -- By whole steps: databases that share a number line differ by their starting number.
    execute (
        select format('alter sequence headrace.ids restart with %s',
                      n.next + ((highest - n.next) / n.step + 1) * n.step)
        from (
            select case when i.is_called then i.last_value + s.seqincrement else i.last_value end as next,
                   s.seqincrement as step
            from headrace.ids i, pg_sequence s where s.seqrelid = 'headrace.ids'::regclass
        ) n);
    perform headrace._log_action(null, repair_ids.actor, 'repair_ids', null, jsonb_build_object('ids', highest));
    return highest;
end $$;
