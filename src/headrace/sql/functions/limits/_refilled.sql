-- What is left of a group's rate at a time, in parts of a start (of which a start takes `per`, and
-- `rate` come in a microsecond). It is never more than burst + 1 starts, so in any time of the
-- length `per`, without its end, there are at most rate + burst. A limit that has changed counts at
-- once: the parts are converted, and the rate is the new one. Time never runs backwards: after a
-- refill at a later time than now nothing more comes until the clock is there. A refill that is
-- dated more than a minute ahead was dated by a clock that was wrong: the group is as one that was
-- never used, full. level null: it never was.
create or replace function headrace._refilled(
    level bigint, unit bigint, at timestamptz, rate int, per bigint, burst int, t timestamptz
) returns bigint
language sql immutable
as $$
    select least((burst + 1)::numeric * per,
                 case when level is null or at > t + interval '1 minute' then (burst + 1)::numeric * per
                      when unit = per then level
                      else floor(level::numeric * per / unit) end
                 + greatest(extract(epoch from t - at) * 1000000, 0) * rate)::bigint
$$;
