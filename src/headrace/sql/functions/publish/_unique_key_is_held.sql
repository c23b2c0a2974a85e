-- Whether an unfinished event, another one than this, holds a unique key; null: there is no key.
create or replace function headrace._unique_key_is_held(home int, key text, event bigint) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
begin
    return key is not null and exists (
        select from headrace.unique_keys u
        where u.namespace = home and u.key = key and u.event <> event
          and headrace._is_unfinished(home, u.event, u.created_at));
end $$;
