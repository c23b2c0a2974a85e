-- Takes one month out of its table. Unfinished deliveries are not lost: see _carry_over.
-- The lock of the parent comes first, as in every query: the opposite order would deadlock with
-- every query.
create or replace function headrace._retire_partition(parent text, name text, ends_at timestamptz) returns void
language plpgsql
as $$
begin
    perform headrace._carry_over(parent, name, ends_at);
    execute format('lock table only headrace.%I in access exclusive mode', parent);
    execute format('lock table headrace.%I in access exclusive mode', name);
    execute format('alter table headrace.%I detach partition headrace.%I', parent, name);
    if headrace._setting('retention_action') = 'drop' then
        execute format('drop table headrace.%I', name);
    end if;
end $$;
