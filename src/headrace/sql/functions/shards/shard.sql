-- Which shard this database is: `shard` of at most `stride`, which are 0 and 1 unless migrate was
-- told otherwise. An event is of shard id % stride, for ever; the ids up to `mark` are of this one,
-- shard 0, because it drew them before it was a shard. identity: of this database; a copy has the
-- same.
create or replace function headrace.shard(out stride int, out shard int, out mark bigint, out identity uuid)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select s.stride, s.number, s.mark, i.id from headrace.shard s, headrace.identity i $$;
