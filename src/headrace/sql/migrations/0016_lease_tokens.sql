-- The proof that a claim is the caller's, which nobody can guess: made once for a lease, whatever it covers.
alter table headrace.leases add column token uuid not null default gen_random_uuid();
alter table headrace.held add column token uuid;    -- its lease's: who ends it need not read that for it. Null: nobody was told of it
alter type headrace.lot add attribute lease_token uuid;
alter type headrace.claimed add attribute lease_token uuid;
alter type headrace.alike add attribute lease_token uuid;

-- Whether a claim of a queue is ended, extended and given progress with its token alone.
alter table headrace.queues add column require_lease_token boolean not null default false;
alter type headrace.listed_queue add attribute require_lease_token boolean;
