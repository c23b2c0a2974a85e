-- Whether publish must look where a key has its home: a slot has another home than this shard, or has
-- come from another shard not long ago.
create or replace function headrace._is_sharded() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select exists (select from headrace.slots s, headrace.shard h
                   where s.home <> h.number or s.origin is not null or s.asked <> '{}')
$$;
