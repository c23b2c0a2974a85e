-- In which order a queue hands out what is ready: fair, so that types and tags share, or oldest, the lowest priority and id of all.
alter table headrace.queues add column "order" text not null default 'fair' check ("order" in ('fair', 'oldest'));
alter type headrace.listed_queue add attribute "order" text;

-- Whether the worker collects the errors of its handlers: what a dead delivery is called, if its lease runs out. See reap.
alter table headrace.leases add column collects boolean not null default false;

-- When a claim began, for its worker.
alter type headrace.lot add attribute picked_at timestamptz;
alter type headrace.claimed add attribute processing_started_at timestamptz;
alter type headrace.alike add attribute processing_started_at timestamptz;

-- The latest time at which any of it became ready: what is logged of it next is not earlier.
alter type headrace.haul add attribute newest timestamptz;
