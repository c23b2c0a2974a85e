-- Which of these events, as publish takes them, were published here under their idempotency keys: asked
-- of a shard that was the home of such a key before, see slots. ids: of those that were, in the order
-- given; null for the others, which this shard cannot have any more. created_at: the first event's, if
-- it was. Publishes nothing.
-- Concurrency: waits for an open publisher of the same idempotency key.
-- Raises what publish raises; QU022 for a key that another event has.
create or replace function headrace.published_before(
    namespace text, events jsonb, out ids bigint[], out created_at timestamptz
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    xid xid8 := pg_current_xact_id();   -- see publish
    found_at int[];
begin
    begin
        select p.ids, p.created_at, p.repeated into ids, created_at, found_at
        from headrace._publish_batch(namespace, events, false, headrace._now(), asked => null) p;
        raise exception using errcode = 'QU099', message = 'what was published is taken back';
    exception when sqlstate 'QU099' then
        null;
    end;
    ids := array(select case when u.place = any (found_at) then u.id end
                 from unnest(ids) with ordinality as u(id, place) order by u.place);
    if found_at is not null then
        perform headrace._confirm_stored();
    end if;
    created_at := case when ids[1] is not null then created_at end;
end $$;
