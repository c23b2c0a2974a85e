-- What tick does to keep the horizon up to date, by which cursors go (see resumed), and the saved states of queues: every state_interval
-- those in which something has happened, and as soon as
-- it is seen those that have reached their persistence_threshold. Ten a call, or what a tenth of a second is enough for, those first that
-- have waited longest, and then a pause: it takes two hundredths of the time at most. What fails is warned of and tried again.
-- Concurrency: one at a time; whoever comes second leaves it to the first. Never waits.
create or replace function headrace.save_states(t timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    every constant interval := nullif(headrace.setting('state_interval'), 'off');
    pause interval;
    began constant timestamptz := clock_timestamp();
    h headrace.horizon;
    due record;
    low headrace.low_water;
    saved int := 0;
begin
    if exists (select from headrace.upkeep u where u.task = 'states' and u.next_at > t)
       or not headrace.try_lock('states') then
        return;
    end if;
    pause := case when every is null then interval '10 seconds'
                  when exists (select from headrace.queues q where q.persistence_threshold is not null and q.space is not null)
                  then least(every, interval '1 second') else every end;
    if not exists (select from headrace.upkeep u where u.task = 'states') then
        insert into headrace.upkeep (task, next_at) values ('states', t + pause);   -- there is no hurry with the first
        return;
    end if;
    h := headrace.look_ahead(true, false);
    for due in
        select w.q, w.seen, w.is_deep
        from (
            select q, q.persistence_threshold is not null and headrace.depth(q.id, q.persistence_threshold) >= q.persistence_threshold as is_deep,
                   concat_ws(' ', o::text, c.last, l.last, q.state, headrace.state_config(q)) as seen
            from headrace.queues q
            left join headrace.totals o on o.queue = q.id
            left join (select l.queue, max(l.id) as last from headrace.leases l group by l.queue) l on l.queue = q.id
            left join lateral (select max(a.id) as last from headrace.admin_log a where a.namespace = q.namespace) c on true
            where q.space is not null
        ) w
        left join headrace.saved_states s on s.queue = (w.q).id
        where every is not null and (s.queue is null or w.is_deep and not s.is_deep or s.next_at <= t and (w.seen, w.is_deep) is distinct from (s.seen, s.is_deep))
        order by s.next_at nulls first
    loop
        exit when saved >= 10 and clock_timestamp() > began + interval '0.1 seconds';
        saved := saved + 1;
        begin
            if headrace.try_lock('state ' || (due.q).id) then
                low := headrace.keep_state(due.q, t, h, false);
                -- Where only an open transaction keeps the checkpoint back, it will move though nothing happens in the queue.
                insert into headrace.saved_states as s (queue, seen, is_deep, next_at)
                values ((due.q).id, case when low.lag = 0 and low.reason is not null then '' else due.seen end, due.is_deep, t + every)
                on conflict (queue) do update set seen = excluded.seen, is_deep = excluded.is_deep, next_at = excluded.next_at;
            end if;
        exception when others then
            perform headrace.put_off('saving the state of ' || (due.q).name, sqlstate, sqlerrm);
        end;
    end loop;
    delete from headrace.upkeep u where u.task = 'states';
    insert into headrace.upkeep (task, next_at)
    values ('states', t + greatest(pause, 50 * (clock_timestamp() - began)));
end $$;
