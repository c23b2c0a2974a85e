-- Refuses events whose keys have their home on another shard, and holds back the keys of slots that
-- are still arriving here. asked: as in publish; null refuses nothing.
-- The detail of the refusal is for clients: they learn the home from it.
-- Concurrency: while a slot arrives, a publisher waits for another open one that is the first to use
-- the same key.
-- Raises QU060.
create or replace function headrace._check_homes(
    space headrace.namespaces, heads headrace.head[], asked boolean, t timestamptz
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    wrong record;
begin
    select coalesce(k.key, k.unique_key, k.debounce, k.idempotency_key) as key, k.idempotency_key, s.*,
           s.home <> here.number as is_elsewhere into wrong
    from unnest(heads) k
    join headrace.slots s on s.slot = headrace._slot(
            space.name, coalesce(k.key, k.unique_key, k.debounce, k.idempotency_key)),
         headrace.shard here
    where _check_homes.asked is not null
      and (s.home <> here.number
           or k.idempotency_key is not null and not _check_homes.asked and s.asked <> '{}' and s.ask_until > t)
    order by is_elsewhere desc, k.n limit 1;
    if found then
        raise exception using errcode = 'QU060',
            message = case
                when wrong.is_elsewhere
                    then format('the key %L has its home on shard %s: publish there',
                                wrong.key, wrong.home)
                else format('shard %s was the home of the idempotency key %L until lately and may know it: call '
                            'headrace.published_before there, then publish here with asked => true',
                            array_to_string(wrong.asked, ', '), wrong.idempotency_key) end,
            detail = format('slot %s, home %s, version %s, ask {%s}', wrong.slot, wrong.home, wrong.version,
                            case when wrong.ask_until > t then array_to_string(wrong.asked, ',') end);
    end if;
    insert into headrace.active (queue, key, event)
    select distinct q, k.key, 0
    from unnest(heads) k
    join headrace.slots s on s.slot = headrace._slot(space.name, k.key) and s.origin is not null
    cross join lateral unnest(k.queues) q
    where not exists (select from headrace.active a where a.queue = q and a.key = k.key)
    order by q, k.key
    on conflict do nothing;
end $$;
