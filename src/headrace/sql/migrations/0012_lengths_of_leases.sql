-- For how long a lease was made: what a heartbeat that does not say how long gives it again. Null until the first heartbeat: until then
-- it is `until` - `picked_at`, and a claim need not write it.
alter table headrace.leases add column lasts interval;
-- When the last heartbeat was; null: there was none, and `until` counts from picked_at. See mend_times.
alter table headrace.leases add column extended_at timestamptz;
