-- A node's id, normalised: every run of characters other than ASCII letters and digits, dot, colon,
-- underscore and hyphen becomes one hyphen; hyphens at the ends are removed; the id keeps at most
-- 100 characters. null: no letter or digit is left. (The same in every locale; display_name may be
-- anything.)
create or replace function headrace._node_name(node_id text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ 
    select substring(btrim(left(btrim(regexp_replace(node_id collate "C", '[^A-Za-z0-9._:]+', '-', 'g'), '-'), 100),
                           '-') from '.*[A-Za-z0-9].*')
$$;
