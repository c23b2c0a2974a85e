-- Removes rows that are too old for a second call about the same event, up to `most` rows: see
-- headrace.sent.
-- Returns whether there may be more.
-- Concurrency: skips locked rows.
create or replace function headrace._forget_sent(t timestamptz, most int) returns boolean
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
