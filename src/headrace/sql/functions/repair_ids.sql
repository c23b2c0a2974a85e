-- Brings headrace.ids behind every number that is in the tables, and says to which; null: it was there. For after a restore of a part
-- of a dump, and for the moment when a copy by logical replication takes over: see ids_behind.
-- actor: who did it, for the log: see log_action. The caller's role if nobody is named.
-- Concurrency: waits ten seconds for transactions that have drawn a number and are open (55P03); who draws one meanwhile waits until
-- this is committed. It never goes back.
create or replace function headrace.repair_ids(actor text default null) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
declare
    highest bigint;
begin
    perform headrace.admit(null);
    -- Changes nothing, and keeps everybody from drawing: between a look and a setval the sequence might have come further.
    alter sequence headrace.ids no cycle;
    highest := greatest(
        headrace.ids_behind(), (select max(r.seq) from headrace.ready r), (select max(d.event) from headrace.delayed d),
        (select max(x.event) from headrace.dead_letters x));
    if highest is null or highest <= headrace.drawn() then
        return null;
    end if;
    -- By whole steps: databases that share a number line differ by where they began.
    execute (
        select format('alter sequence headrace.ids restart with %s', n.next + ((highest - n.next) / n.step + 1) * n.step)
        from (
            select case when i.is_called then i.last_value + s.seqincrement else i.last_value end as next, s.seqincrement as step
            from headrace.ids i, pg_sequence s where s.seqrelid = 'headrace.ids'::regclass
        ) n);
    perform headrace.log_action(null, repair_ids.actor, 'repair_ids', null, jsonb_build_object('ids', highest));
    return highest;
end $$;
