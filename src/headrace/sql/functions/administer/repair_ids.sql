-- Moves headrace.ids past every number in the tables, and lets it draw the numbers of the shard that
-- this database is; returns the highest number so far. null: the sequence was correct. For use after
-- a restore of a partial dump, when a copy by logical replication takes over (see ids_behind), and
-- when somebody has altered the sequence (see _check_shard).
-- actor: for the log, see _log_action. The default is the caller's role.
-- Raises QU042 if more is wrong with the shard than its sequence.
-- Concurrency: waits ten seconds for open transactions that have drawn a number (55P03); a session
-- that draws one meanwhile waits until this commits. The sequence never goes back.
create or replace function headrace.repair_ids(actor text default null) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
declare
    own headrace.shard;
    drawn bigint;
    highest bigint;
begin
    perform headrace._check_access(null);
    -- This changes nothing, and it blocks every session that draws a number: between a look and a
    -- setval the sequence might have come further.
    alter sequence headrace.ids no cycle;
    select * into own from headrace.shard;
    if not found then
        perform headrace._check_shard();
    end if;
    drawn := headrace._last_drawn_id();
    highest := greatest(
        headrace._highest_id(), (select max(r.seq) from headrace.ready r),
        (select max(d.event) from headrace.delayed d), (select max(x.event) from headrace.dead_letters x));
    if coalesce(highest, 0) <= drawn and (select p.problem is null from headrace._shard_problem() p) then
        return null;
    end if;
    highest := greatest(highest, drawn);
    perform headrace._lay_ids(own, highest);
    perform headrace._check_shard();    -- the functions may be wrong, too
    perform headrace._log_action(null, repair_ids.actor, 'repair_ids', null, jsonb_build_object('ids', highest));
    return highest;
end $$;
