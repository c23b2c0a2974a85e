-- Combines the known state of the numbers of headrace.ids with a look at the transactions that are
-- writing now. `own`: a backend to leave out, because it sees already what it is about to commit.
--
-- A transaction that draws a number which readers look for holds a row-exclusive lock on a table of
-- ours by then, until its commit can be seen. So the numbers up to the one last drawn are final
-- when the transactions that held such a lock just after have ended. A transaction that has
-- published and stays open holds this up; one that only reads, or writes elsewhere, does not. For
-- READ COMMITTED only: the next statement sees the rows that have become final, an old snapshot
-- does not.
-- Raises 25006 on a standby: only the primary knows the writing transactions.
create or replace function headrace._advance_horizon(
    known headrace.horizon, own int default null
) returns headrace.horizon
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    drawn constant bigint := headrace._last_drawn_id();
    -- Read after `drawn`, so that the transactions that have drawn one of those are among them.
    writing constant text[] := array(
        select distinct l.virtualtransaction from pg_locks l
        where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and (own is null or l.pid is distinct from own)
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
          and l.relation in (
              select c.oid from pg_class c
              where c.relnamespace = 'headrace'::regnamespace and c.relkind <> 'i'  -- vacuum locks indexes, too
                -- readers write these two, and no number is drawn for them
                and c.relname not in ('horizons', 'locks')));
    prepared constant text[] := array(select w from unnest(writing) w where w like '-1/%');
begin
    if pg_is_in_recovery() then
        raise exception using errcode = '25006',
            message = 'this is a standby, and only the primary knows which transactions are still writing: read there';
    elsif writing = '{}' then
        return row(greatest(known.final, drawn), drawn, writing);
    elsif known.pending is null then
        return row(coalesce(known.final, 0), drawn, writing);
    elsif known.awaited && writing then
        return known;
    elsif prepared <> '{}' and exists (select from unnest(known.awaited) w where w not like '-1/%') then
        -- Some of those may be awaited: a transaction that prepares a commit in two phases has
        -- another name from then on.
        return row(known.final, known.pending, prepared);
    end if;
    return row(greatest(known.final, known.pending), drawn, writing);
end $$;
