-- What is left of a group's rate at a time, in parts of a start (of which a start takes `per`, and
-- `rate` come in a microsecond). It is never more than burst + 1 starts, so in any time of the length
-- `per`, without its end, there are at most rate + burst. A limit that has changed counts at once:
-- the parts are converted, and the rate is the new one. Time never runs backwards: a refill at a
-- later time than now gives nothing more, until the clock is there, or, if it is dated more than a
-- minute ahead, by a clock that was wrong, from now on: see _log_time, which dates the next refill.
-- level null: the group was never used.
create or replace function headrace._refilled(
    level bigint, unit bigint, at timestamptz, rate int, per bigint, burst int, t timestamptz
) returns bigint
language sql immutable
as $$
    select least((burst + 1)::numeric * per,
                 case when unit = per then level
                      else coalesce(floor(level::numeric * per / unit), (burst + 1)::numeric * per) end
                 + greatest(extract(epoch from t - at) * 1000000, 0) * rate)::bigint
$$;
