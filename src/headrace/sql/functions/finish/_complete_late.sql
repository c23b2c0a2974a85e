-- Completes one delivery whose lease expired, if no worker has had it since: see _take_late. False:
-- a worker has, or the token is missing or another; nothing was changed.
create or replace function headrace._complete_late(
    queue int, event bigint, attempt int, ms int, code int, lease_token text
) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    q headrace.queues;
    late headrace.taken[];
begin
    select * into q from headrace.queues o where o.id = _complete_late.queue;
    late := headrace._take_late(q, headrace._now(), '{}', array[event], array[attempt], null, array[lease_token], null);
    if late <> '{}' then
        perform headrace._settle(q, headrace._now(), 'complete', late, array[ms], array[code], null);
    end if;
    return late <> '{}';
end $$;
