-- The part of tick that keeps the horizon up to date, which cursors follow (see _resumed_reading),
-- and the saved states of queues: every state_interval the queues in which something has happened,
-- and at once the queues that tick sees at their persistence_threshold. Saves ten queues a call, or
-- as many as a tenth of a second allows, the longest waiting first, and then pauses: it takes at
-- most two hundredths of the time. A failure raises a warning and is retried.
-- Concurrency: one call at a time; a second call leaves the work to the first. Never waits.
create or replace function headrace._save_states(t timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    every constant interval := nullif(headrace._setting('state_interval'), 'off');
    pause interval;
    began constant timestamptz := clock_timestamp();
    h headrace.horizon;
    due record;
    low headrace.low_water;
    saved int := 0;
begin
    if exists (select from headrace.upkeep u where u.task = 'states' and u.next_at > t)
       or not headrace._try_lock('states') then
        return;
    end if;
    pause := case when every is null then interval '10 seconds'
                  when exists (select from headrace.queues q where q.persistence_threshold is not null
                                   and q.space is not null)
                  then least(every, interval '1 second') else every end;
    if not exists (select from headrace.upkeep u where u.task = 'states') then
        insert into headrace.upkeep (task, next_at) values ('states', t + pause);   -- the first is not urgent
        return;
    end if;
    h := headrace._horizon(true, false);
    for due in
        select w.q, w.seen, w.is_deep
        from (
            select q, q.persistence_threshold is not null
                and headrace._depth(q.id, q.persistence_threshold) >= q.persistence_threshold as is_deep,
                   concat_ws(' ', o::text, c.last, l.last, q.state, headrace._state_config(q)) as seen
            from headrace.queues q
            left join headrace.totals o on o.queue = q.id
            left join (select l.queue, max(l.id) as last from headrace.leases l group by l.queue) l on l.queue = q.id
            left join lateral (select max(a.id) as last from headrace.admin_log a where a.namespace = q.namespace) c
                on true
            where q.space is not null
        ) w
        left join headrace.saved_states s on s.queue = (w.q).id
        where every is not null and (s.queue is null or w.is_deep and not s.is_deep or s.next_at <= t
                                     and (w.seen, w.is_deep) is distinct from (s.seen, s.is_deep))
        order by s.next_at nulls first
    loop
        exit when saved >= 10 and clock_timestamp() > began + interval '0.1 seconds';
        saved := saved + 1;
        begin
            if headrace._try_lock('state ' || (due.q).id) then
                low := headrace._store_state(due.q, t, h, false);
                -- If only an open transaction holds the checkpoint back, the checkpoint will move
                -- though nothing happens in the queue.
                insert into headrace.saved_states as s (queue, seen, is_deep, next_at)
                values ((due.q).id, case when low.lag = 0 and low.reason is not null then '' else due.seen end,
                        due.is_deep, t + every)
                on conflict (queue) do update set seen = excluded.seen, is_deep = excluded.is_deep,
                    next_at = excluded.next_at;
            end if;
        exception when others then
            perform headrace._retry_upkeep_in('saving the state of ' || (due.q).name, sqlstate, sqlerrm);
        end;
    end loop;
    delete from headrace.upkeep u where u.task = 'states';
    insert into headrace.upkeep (task, next_at)
    values ('states', t + greatest(pause, 50 * (clock_timestamp() - began)));
end $$;
