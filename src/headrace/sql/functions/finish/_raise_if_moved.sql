-- Refuses to end attempts whose events the transaction cannot see: above READ COMMITTED an old
-- snapshot may see neither the month that was retired nor the events that were carried over from
-- it. Raises 40001. The arguments are those of _settle.
create or replace function headrace._raise_if_moved(usual text, taken headrace.taken[], others jsonb) returns void
language plpgsql
as $$
begin
    if exists (
        select from unnest(taken) k
        where coalesce(others -> k.item::text ->> 'action', usual) <> 'complete'
          and not exists (select from headrace._stored_event(k.event, k.created_at)))
    then
        raise exception using errcode = '40001', message = 'the event has been moved since this transaction began';
    end if;
end $$;
