-- Takes one month out of its table. What still lives is not lost: see carry_over.
-- The lock of the parent comes first, as in every query: the other way round would be a deadlock with each of them.
create or replace function headrace.retire_partition(parent text, name text, ends_at timestamptz) returns void
language plpgsql
as $$
begin
    perform headrace.carry_over(parent, name, ends_at);
    execute format('lock table only headrace.%I in access exclusive mode', parent);
    execute format('lock table headrace.%I in access exclusive mode', name);
    execute format('alter table headrace.%I detach partition headrace.%I', parent, name);
    if headrace.setting('retention_action') = 'drop' then
        execute format('drop table headrace.%I', name);
    end if;
end $$;
