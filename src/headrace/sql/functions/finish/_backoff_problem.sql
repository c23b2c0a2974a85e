-- The problem of a backoff policy; null: none. See headrace._backoff for the meaning of the fields.
create or replace function headrace._backoff_problem(policy jsonb) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case
        when jsonb_typeof(policy) <> 'object' or policy - '{kind,delay,step,factor,max_delay,jitter}'::text[] <> '{}'
            then 'QU001 a backoff is an object of kind, delay, step, factor, max_delay and jitter'
        when policy ->> 'kind' is null or policy ->> 'kind' not in ('fixed', 'linear', 'exponential')
            then 'QU001 the kind of a backoff is fixed, linear or exponential'
        when (policy @? 'strict $.delay ? (@ == 0 || @ >= 0.001 && @ <= 31536000)') is not true
            then 'QU001 the delay of a backoff is a number of seconds, from a millisecond to a year, or 0'
        when policy ? 'step' and (policy ->> 'kind' <> 'linear'
                                  or not policy @? 'strict $.step ? (@ == 0 || @ >= 0.001 && @ <= 31536000)')
            then 'QU001 the step of a backoff is for a linear one: a number of seconds, from a millisecond to a '
                 'year, or 0'
        when policy ? 'factor'
            and (policy ->> 'kind' <> 'exponential' or not policy @? 'strict $.factor ? (@ >= 1 && @ <= 100)')
            then 'QU001 the factor of a backoff is for an exponential one: a number from 1 to 100'
        when policy ? 'max_delay' and not policy @? 'strict $.max_delay ? (@ == 0 || @ >= 0.001 && @ <= 31536000)'
            then 'QU001 the max_delay of a backoff is a number of seconds, from a millisecond to a year, or 0'
        when policy ? 'jitter' and not policy @? 'strict $.jitter ? (@ == 0 || @ >= 0.001 && @ <= 1)'
            then 'QU001 the jitter of a backoff is a number from 0 to 1 in thousandths'
    end
$$;
