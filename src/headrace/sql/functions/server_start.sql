-- Since when the server has run without a crash, in microseconds: what was learned before may be about numbers that were drawn, and
-- never reached the disk. PostgreSQL begins its statistics anew after a crash, also one that the server itself has survived.
create or replace function headrace.server_start() returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select (extract(epoch from greatest(pg_postmaster_start_time(), w.stats_reset)) * 1000000)::bigint from pg_stat_wal w
$$;
