-- The time of a log entry that is written at t and follows one of the time `before`: not earlier
-- than that. So the entries of a delivery are in the order of their times as well as of their ids,
-- also where sessions read the clock in another order than they commit, or the clock was corrected.
-- A time more than a minute ahead was written by a clock that was wrong, and does not count: see
-- _read_clock. Stable, as the sum of a time and an interval is, although this one depends on nothing:
-- an immutable function that calls a stable one is not inlined.
create or replace function headrace._log_time(t timestamptz, before timestamptz) returns timestamptz
language sql stable parallel safe
as $$ select case when before > t and before <= t + interval '1 minute' then before else t end $$;
