-- Carries over an event of a past month that is about to be delivered again: retention may be
-- carrying over the live events of that month without seeing this one. Adds a new row, which a
-- `_forget` that began before does not see.
create or replace function headrace._keep_stored(event_id bigint, t timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    since constant timestamptz := headrace._earliest_time_of(array[_keep_stored.event_id]);
    body headrace.events;
begin
    select * into body from (
        select e.* from headrace.events e where e.id = _keep_stored.event_id
            and (since = '-infinity' or e.created_at >= since)
        union all
        select c.* from headrace.events_carried c where c.id = _keep_stored.event_id
    ) b limit 1;
    if body.created_at < date_trunc('month', t, 'UTC') then
        delete from headrace.events_carried c where c.id = _keep_stored.event_id;
        insert into headrace.events_carried select body.*;
    end if;
end $$;
