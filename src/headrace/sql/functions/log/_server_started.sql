-- The time since which the server has run without a crash, in microseconds: knowledge from before
-- may be about numbers that were drawn, and never reached the disk. PostgreSQL resets its
-- statistics after a crash, also after one that the server itself has survived.
create or replace function headrace._server_started() returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select (extract(epoch from greatest(pg_postmaster_start_time(), w.stats_reset)) * 1000000)::bigint
    from pg_stat_wal w
$$;
