-- The first numbers of the advisory locks there are, all of them. Any role that may connect can take such a lock and keep it, so they are
-- hints: nobody waits for one, and work goes on, later, without it. Exclusion is the matter of try_lock.
--     sleepers     with the number of a queue: shared by the sessions that sleep until it has work, see fall_asleep. Taken by an outsider: workers
--                  find work by polling, and publishers notify in vain
--     instances    mixed into the number of a node's start: shared by its sessions, see stay. Taken by an outsider: a dead node's
--                  claims are taken over when their leases end
-- locks_in_the_way tells who has one that he should not have.
create or replace function headrace.advisory_lock(purpose text) returns int
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select case purpose when 'sleepers' then 1212433732 when 'instances' then 1212433745 end $$;
