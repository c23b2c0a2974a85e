-- The identity of one life of one copy of this database: the server, the database in it, and the
-- timeline. A promoted standby and a restored backup begin another life; a server that is restarted
-- goes on with its own. Cursors carry it: see _resumed_reading.
-- Raises 55000 on a standby, which has no timeline of its own.
create or replace function headrace._database_life() returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select ltrim(left(pg_walfile_name(pg_current_wal_lsn()), 8), '0')
        || left(md5(concat_ws(' ', s.system_identifier, d.oid)), 7)
    from pg_control_system() s, pg_database d where d.datname = current_database()
$$;
