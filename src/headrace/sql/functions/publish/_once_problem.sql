-- The problem with the fields of an event by which it is published once: its unique key, or how it
-- is debounced; null: none. A debounced event without a settle is refused where it is published,
-- because a file that is imported has debounced events, and no longer tells their settle.
create or replace function headrace._once_problem(header jsonb) returns text
language plpgsql immutable parallel safe
as $$
begin
    return case
        when header ? 'unique' and (jsonb_typeof(header -> 'unique') <> 'string'
                                    or length(header ->> 'unique') not between 1 and 200)
            then 'QU001 a unique key is a string of 1 to 200 characters'
        when header ? 'debounce' and (jsonb_typeof(header -> 'debounce') <> 'string'
                                      or length(header ->> 'debounce') not between 1 and 200)
            then 'QU001 a debounce key is a string of 1 to 200 characters'
        when header ?| '{settle,at_latest}' and not header ? 'debounce'
            then 'QU001 settle and at_latest are for an event with a debounce key'
        when header ? 'settle' and not header @? 'strict $.settle ? (@ >= 0.001 && @ <= 315360000)'
            then 'QU001 settle is a number of seconds, from a millisecond to ten years'
        when header ? 'at_latest' and not header @? 'strict $.at_latest ? (@ >= 0.001 && @ <= 315360000)'
            then 'QU001 at_latest is a number of seconds, from a millisecond to ten years'
        when (header ->> 'at_latest')::float8 < (header ->> 'settle')::float8
            then 'QU001 the at_latest of an event is not shorter than its settle'
        when header ? 'debounce' and header ?| '{delay,at}'
            then 'QU001 a debounced event has no delay or time of its own: settle and at_latest say when it is due'
        when header ? 'debounce' and header ? 'unique'
            then 'QU001 an event has a unique key or a debounce key, not both'
    end;
end $$;
