-- The backoff after the n-th failure. fixed: delay; linear: delay, and step more for each failure
-- before (default: as much as delay); exponential: delay, times factor (2) for each failure before;
-- never more than max_delay (default: a day), plus up to jitter times as much again. Jitter only
-- adds: a retry is never earlier than the policy says.
create or replace function headrace._backoff(policy jsonb, failures int) returns interval
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select make_interval(secs =>
        least(
            case policy ->> 'kind'
                when 'linear' then (policy ->> 'delay')::float8 + (failures - 1) * coalesce(policy ->> 'step',
                    policy ->> 'delay')::float8
                -- a hundred to the 150th is still a number
                when 'exponential' then (policy ->> 'delay')::float8 * coalesce(policy ->> 'factor',
                    '2')::float8 ^ least(failures - 1, 150)
                else (policy ->> 'delay')::float8
            end,
            coalesce((policy ->> 'max_delay')::float8, greatest(86400, (policy ->> 'delay')::float8))
        ) * (1 + random() * coalesce((policy ->> 'jitter')::float8, 0)))
$$;
