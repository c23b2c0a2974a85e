-- What this shard knows of the homes of keys: see the table slots. ask: the earlier homes that a
-- publisher with an idempotency key has to ask first. No row: shard 0 is the home of every key.
create or replace function headrace.slots(out slot int, out home int, out version int, out origin int, out ask int[])
returns setof record
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select s.slot, s.home, s.version, s.origin, case when s.ask_until > headrace._now() then s.asked else '{}' end
    from headrace.slots s order by s.slot
$$;
