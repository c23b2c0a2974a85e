-- A node's id made plain: whatever is no letter or digit of ASCII, dot, colon, underscore or hyphen becomes a hyphen, several of
-- them one; none at the ends; 100 characters at most. null: no letter or digit is left. (The same in every locale; display_name may be anything.)
create or replace function headrace.node_name(node_id text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ 
    select substring(btrim(left(btrim(regexp_replace(node_id collate "C", '[^A-Za-z0-9._:]+', '-', 'g'), '-'), 100), '-') from '.*[A-Za-z0-9].*')
$$;
