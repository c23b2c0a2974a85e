-- The place of a number on this database's own number line, where its numbers are neighbours: see
-- Shards in 0_essay. A number of another shard has the place of the last one before it.
-- This is the function of the only database of its kind; _become_shard writes that of a shard, with
-- its stride in it. PostgreSQL replaces a call by the expression, so a call costs nothing: no SET
-- clause, one expression.
create or replace function headrace.place(id bigint) returns bigint
language sql immutable parallel safe
as $$ select id $$;
