-- The first numbers of all advisory locks: sql/locks.md says what each is for. Any role that may
-- connect can take such a lock and keep it, so they are hints. _try_lock is for exclusion.
create or replace function headrace._advisory_lock(purpose text) returns int
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
select case purpose when 'sleepers' then 1212433732
                    when 'notifiers' then 1212433742
                    when 'instances' then 1212433745 end
$$;
