-- Removes what is too old to be told of a second time, up to `most` rows: see headrace.sent. Returns whether there may be more.
-- Concurrency: passes by what is locked.
create or replace function headrace.forget_sent(t timestamptz, most int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    gone int;
begin
    delete from headrace.sent s where s.ctid = any (array(
        select o.ctid from headrace.sent o where o.at < t - interval '5 minutes' or o.at > t + interval '5 minutes'
        limit most for update skip locked));
    get diagnostics gone = row_count;
    return gone >= most;
end $$;
