-- The problem of the `others` of a finish of so many items; null: none. Each field is checked for
-- its type, so that a string where a number belongs is refused and not just never compared.
create or replace function headrace._results_problem(others jsonb, items int) returns text
language plpgsql stable parallel safe
as $$
declare
    item text;
    other jsonb;
begin
    if jsonb_typeof(others) <> 'object' then
        return 'QU001 others is an object, keyed by the number of the item';
    end if;
    for item, other in select * from jsonb_each(others) loop
        if item !~ E'^[1-9]\\d{0,8}$' or item::int > items then
            return 'QU001 others is keyed by the number of an item, the first being 1';
        elsif jsonb_typeof(other) <> 'object'
            or other - '{action,error,retry_in,max_retries,backoff,reason,last_reason,status,progress,delay}'::text[]
                <> '{}' then
            return 'QU001 each of others is an object of action, error, retry_in, max_retries, backoff, reason, '
                   'last_reason, status, progress and delay';
        elsif other ? 'progress' and headrace._progress_problem(other -> 'progress') is not null then
            return headrace._progress_problem(other -> 'progress');
        elsif other ? 'delay' and other -> 'action' is distinct from '"release"' then
            return 'QU001 a delay is for the action release';
        elsif other ? 'delay' and not other @? 'strict $.delay ? (@ >= 0 && @ <= 315360000)' then
            return 'QU001 the delay of a release is a number of seconds, from 0 to ten years; one under 0.1 is 0.1';
        elsif other -> 'action' in ('"complete"', '"release"') then
            continue;
        elsif coalesce(other -> 'action' not in ('"fail"', '"abandon"'), true) then
            return 'QU001 each of others has an action: complete, fail, release or abandon';
        elsif other ? 'retry_in' and not other @? 'strict $.retry_in ? (@ == 0 || @ >= 0.000001 && @ <= 315360000)' then
            return 'QU001 retry_in is a number of seconds, from a microsecond to ten years, or 0';
        elsif other ? 'max_retries' and not (other @? 'strict $.max_retries ? (@ >= 0 && @ <= 1000)'
                                             and other ->> 'max_retries' ~ E'^\\d+$') then
            return 'QU001 max_retries is a whole number from 0 to 1000';
        elsif other ? 'status' and other -> 'status' not in ('"FAILED"', '"COMPLETED_WITH_ERRORS"') then
            return 'QU001 the status of a dead letter is FAILED or COMPLETED_WITH_ERRORS';
        elsif other ? 'backoff' and headrace._backoff_problem(other -> 'backoff') is not null then
            return headrace._backoff_problem(other -> 'backoff');
        elsif jsonb_typeof(other -> 'error') <> 'string' or jsonb_typeof(other -> 'reason') <> 'string'
              or jsonb_typeof(other -> 'last_reason') <> 'string' then
            return 'QU001 error, reason and last_reason are strings';
        end if;
    end loop;
    return null;
end $$;
