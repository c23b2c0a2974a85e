-- Removes debounce keys whose last event no longer waits for its first claim, the longest not
-- looked at first. As _forget_unique_keys.
create or replace function headrace._forget_debounce_keys(most int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    due record;
    looked int := 0;
begin
    for due in
        select d.queue, d.key, d.created_at, exists (
                   select from headrace._stored_event(d.event, d.created_at) b
                   cross join lateral headrace._waiting_delivery(d.event, d.queue, b.route, b.priority) w
                   where w.attempts = 0) as waits
        from (
            select k.* from headrace.debounce_keys k
            where k.look_at <= t
            order by k.look_at limit most
            for update skip locked
        ) d
    loop
        looked := looked + 1;
        if due.waits then
            update headrace.debounce_keys d set look_at = t + greatest(t - d.created_at, interval '1 hour')
            where d.queue = due.queue and d.key = due.key;
        else
            delete from headrace.debounce_keys d where d.queue = due.queue and d.key = due.key;
        end if;
    end loop;
    return looked >= most;
end $$;
