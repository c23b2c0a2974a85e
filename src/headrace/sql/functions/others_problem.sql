-- What is wrong with the `others` of finish; null: nothing.
create function headrace.others_problem(others jsonb) returns text
language plpgsql immutable parallel safe
as $$
begin
    return case
        when jsonb_typeof(others) <> 'object'
             or others @? '$.* ? (@.type() != "object" || !(@.action == "fail" || @.action == "release" || @.action == "complete"))'
            then 'QU001 others is an object of objects, each with an action: complete, fail or release'
        when others @? '$.* ? (exists(@.retry_in) && !(@.retry_in >= 0 && @.retry_in <= 315360000))'
            then 'QU001 retry_in is a number of seconds from 0 to ten years'
        when others @? '$.* ? (exists(@.max_retries) && !(@.max_retries >= 0 && @.max_retries <= 1000))'
            then 'QU001 max_retries is a whole number from 0 to 1000'
        when others @? '$.* ? (exists(@.status) && !(@.status == "FAILED" || @.status == "COMPLETED_WITH_ERRORS"))'
            then 'QU001 the status of a dead letter is FAILED or COMPLETED_WITH_ERRORS'
    end;
end $$;
