-- The mark that a reader hands back with its next call: see _resumed_reading. Its cursor stands at
-- a number that was reported, or at one that was drawn before a commit.
create or replace function headrace._reading_mark(r headrace.reading, width int) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select format('%s-%s %s %s %s %s %s', r.life,
                  greatest(r.after, least(r.position, coalesce((r.reached + 1) * width - 1, 0))),
                  r.start, r.position, (r.known).final, (r.known).pending, array_to_string((r.known).awaited, ','))
$$;
