-- The lease tokens of a call, one for each item, where the queue requires them: an item without one
-- gets a token that fits no claim, also none that is made while the call waits.
create or replace function headrace._required_tokens(tokens text[], size int) returns text[]
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select array(select coalesce(case cardinality(tokens) when 1 then tokens[1] else tokens[n] end, '')
                 from generate_series(1, size) n order by n)
$$;
