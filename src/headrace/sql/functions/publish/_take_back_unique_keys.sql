-- Gives ended events their unique keys back before they are delivered again. Events without one are
-- ignored.
-- Concurrency: as _take_unique_keys, in the order of the keys.
-- Raises QU026, with the holder as detail, if another unfinished event holds one of the keys, or two
-- of these events have the same.
create or replace function headrace._take_back_unique_keys(
    home int, events bigint[], keys text[], created_at timestamptz[]
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
    one record;
    holder headrace.unique_keys;
    taken_key text;     -- by the event before
    taken_by bigint;
begin
    for one in
        select u.event, u.key, u.created_at from unnest(events, keys, created_at) as u(event, key, created_at)
        where u.key is not null
        order by u.key, u.event
    loop
        holder := headrace._lock_unique_key(home, one.key, one.event, one.created_at);
        if taken_key = one.key then
            holder.event := taken_by;
        elsif holder.event = one.event or not headrace._is_unfinished(home, holder.event, holder.created_at) then
            update headrace.unique_keys u
            set event = one.event, created_at = one.created_at, look_at = headrace._now() + interval '1 hour'
            where u.namespace = home and u.key = one.key;
            taken_key := one.key;
            taken_by := one.event;
            continue;
        end if;
        raise exception using errcode = 'QU026',
            message = format('event %s cannot be delivered again: event %s holds its unique key %L and is unfinished',
                             one.event, holder.event, one.key),
            detail = format('the key is that of event %s', holder.event);
    end loop;
end $$;
