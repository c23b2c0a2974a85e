-- Lets this session hear when deliveries are taken out of the claims of a start of a node, by
-- cancel, reset, erase, fence or delete_queue: it listens now to the returned channel. A
-- notification names the lease, or none if it concerns all of them; a heartbeat (extend) then says
-- which deliveries are gone. Only a hint: any session can notify, and a session that does not
-- listen learns the same from its next heartbeat. instance: as in poll. Not behind a transaction
-- pooler. Raises QU001.
create or replace function headrace.hear_interruptions(instance uuid) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if instance is null then
        raise exception using errcode = 'QU001', message = 'hear_interruptions needs the instance of a node';
    end if;
    -- LISTEN takes no expression; this name is made of hexadecimal digits
    execute format('listen %I', headrace._holder_channel(instance));
    return headrace._holder_channel(instance);
end $$;
