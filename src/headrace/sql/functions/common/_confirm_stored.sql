-- Makes an answer from stored rows as durable as a write. A commit that was interrupted while it
-- waited for a synchronous standby stays, and the next transaction sees it although no standby has
-- it. A call that finds it there and writes nothing waits for no standby either: its "it was done
-- before" would be lost with the server. The message gives the transaction something to commit, and
-- the commit waits until the standby has it and everything before it. For answers from stored rows
-- alone: a transaction that writes or locks a row waits anyway. On a standby there is nothing to
-- wait for.
create or replace function headrace._confirm_stored() returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select pg_logical_emit_message(true, 'headrace', '') where not pg_is_in_recovery()
$$;
