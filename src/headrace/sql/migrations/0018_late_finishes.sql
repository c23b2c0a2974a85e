-- How long a claim lasts that does not say so itself; null: a minute. See claim.
alter table headrace.queues add column lease interval;
alter type headrace.listed_queue add attribute lease float8;    -- seconds

-- The token of the lease that an ABANDONED ended, so that a late finish can still be proved: see take_late. Null in all other rows.
alter table headrace.outcomes add column token uuid;

-- Why a delivery is dead; null: it is not.
alter type headrace.shown add attribute reason text;
