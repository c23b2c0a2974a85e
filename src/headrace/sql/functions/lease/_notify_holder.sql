-- Tells a start of a node that something was taken out of one of its leases; lease null: perhaps out
-- of any. Only a hint: see hear_interruptions. Under the same conditions as _wake: a full queue of
-- notifications must not fail the caller, nor must a notification keep a transaction from being
-- prepared.
create or replace function headrace._notify_holder(instance uuid, lease bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if instance is not null and current_setting('headrace.notify', true) is distinct from 'off'
       and pg_notification_queue_usage() < 0.9 then
        perform pg_notify(headrace._holder_channel(instance), coalesce(lease::text, ''));
    end if;
end $$;
