-- What is wrong with the arguments of poll; null: nothing.
create function headrace.poll_problem(types text[], tags text[], worker text, max_events int, lease interval) returns text
language sql immutable parallel safe
as $$
    select case
        when max_events is null or max_events not between 1 and 1000
            then 'QU001 max_events is a number from 1 to 1000'
        when lease is null or lease <= interval '0' or lease > interval '7 days'
            then 'QU001 a lease is longer than nothing and at most 7 days long'
        when length(worker) > 200
            then 'QU001 the name of a worker has at most 200 characters'
        when cardinality(types) = 0 or array_position(types, null) is not null
            then 'QU001 types is null, for all of them, or at least one type'
        when cardinality(tags) = 0 or array_position(tags, null) is not null
            then 'QU001 tags is null, for all of them, or at least one tag'
        when cardinality(types) > 1000 or cardinality(tags) > 1000
            then 'QU001 a filter has at most 1000 types and 1000 tags'
    end
$$;
