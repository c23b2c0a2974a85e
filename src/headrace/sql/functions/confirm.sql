-- Makes an answer from what is stored as safe as a write. A commit that was interrupted while it waited for a synchronous
-- standby stays, and is seen by the next transaction although no standby has it. A call that finds it there and writes nothing
-- waits for no standby either: its "it was done before" would be lost with the server. The message gives the transaction
-- something to commit, and the commit waits until the standby has it and all before it.
-- For answers from what is stored alone: a transaction that writes or locks a row waits anyway. On a standby there is nothing to wait for.
create or replace function headrace.confirm() returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select pg_logical_emit_message(true, 'headrace', '') where not pg_is_in_recovery()
$$;
