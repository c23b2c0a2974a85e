-- What is known about the numbers of headrace.ids, and what a look at those who are writing adds to it. `own`: a backend that is left
-- out, because what it is about to commit it sees already.
--
-- Whoever draws a number that others look for holds a row-exclusive lock on a table of ours by then, until his commit can be seen. So the
-- numbers up to the one last drawn are final when those who held such a lock just after have ended. A transaction that has
-- published and stays open holds this up; one that only reads, or writes elsewhere, does not.
-- For READ COMMITTED only: what has become final is seen by the next statement, not by an old snapshot.
-- Raises 25006 on a standby: who is writing is known on the primary alone.
create or replace function headrace.advance(known headrace.horizon, own int default null) returns headrace.horizon
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    drawn constant bigint := headrace.drawn();
    -- After `drawn`, so that whoever has drawn one of those is among them.
    writing constant text[] := array(
        select distinct l.virtualtransaction from pg_locks l
        where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and (own is null or l.pid is distinct from own)
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
          and l.relation in (
              select c.oid from pg_class c
              where c.relnamespace = 'headrace'::regnamespace and c.relkind <> 'i'  -- those vacuum locks, too
                and c.relname not in ('horizons', 'locks')));                       -- which readers write, and nobody draws a number for
    prepared constant text[] := array(select w from unnest(writing) w where w like '-1/%');
begin
    if pg_is_in_recovery() then
        raise exception using errcode = '25006', message = 'this is a standby, and who is still writing is known on the primary alone: read there';
    elsif writing = '{}' then
        return row(greatest(known.final, drawn), drawn, writing);
    elsif known.pending is null then
        return row(coalesce(known.final, 0), drawn, writing);
    elsif known.awaited && writing then
        return known;
    elsif prepared <> '{}' and exists (select from unnest(known.awaited) w where w not like '-1/%') then
        -- Some of those may be awaited: who prepares a commit in two phases goes by another name from then on.
        return row(known.final, known.pending, prepared);
    end if;
    return row(greatest(known.final, known.pending), drawn, writing);
end $$;
