-- Lets headrace.ids go on with the first number of this shard that is above `last`, by its stride.
-- The caller has blocked every other draw.
create or replace function headrace._lay_ids(own headrace.shard, last bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    execute format('alter sequence headrace.ids increment by %s start with %s restart with %s', own.stride,
                   case own.number when 0 then own.stride else own.number end,
                   last + 1 + (own.number - (last + 1) % own.stride + own.stride) % own.stride);
end $$;
