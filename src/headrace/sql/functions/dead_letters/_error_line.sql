-- The most informative line of an error: the exception under a Python traceback, else the first
-- line that is not empty; of a dead letter without an error, its reason.
create or replace function headrace._error_line(reason text, error text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select left(coalesce(
        (regexp_match(right(error, 8192), E'.*\\n +File "[^\\n]*\\n(?: [^\\n]*\\n)*([^\\s][^\\n]*)'))[1],
        (regexp_match(left(error, 8192), E'[^\\n]*[^\\s][^\\n]*'))[1],
        reason,
        ''), 1000)
$$;
