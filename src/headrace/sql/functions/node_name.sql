-- A node's id made plain: whatever is no letter, digit, dot, colon, underscore or hyphen becomes a hyphen, several of them
-- one; none at the ends; 100 characters at most. null: nothing is left.
create or replace function headrace.node_name(node_id text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select nullif(btrim(left(btrim(regexp_replace(node_id, '[^[:alnum:]._:-]+|-{2,}', '-', 'g'), '-'), 100), '-'), '') $$;
