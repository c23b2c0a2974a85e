-- A mark for log_since, to read the entries from now on, in any namespace, and its place:
-- `position`. Uncommitted entries of open transactions may be before it. After a crash or a
-- promotion it is a little earlier: see _resumed_reading.
-- Raises 25006 on a standby.
create or replace function headrace.log_now(out mark text, out "position" bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    r constant headrace.reading := headrace._resumed_reading(0, null, 1024);
begin
    "position" := headrace.log_end();
    mark := format('%s-%s %s %s', r.life, least((coalesce(r.reached, 0) + 1) * 1024 - 1, "position"), r.start,
                   "position");
end $$;
