-- Samples queue depths, and the latencies and run times of attempts since the last sample, and
-- stores them for `history`; once in five seconds, however often ticks run. Its cost grows with the
-- queues in which something waits, not with the deliveries there. A tick looks at queues for a
-- twentieth of a second and leaves the others to the next ones, so that a sample of very many queues
-- takes several ticks, and is known when it is whole. Where samples take long, they are less often,
-- and take at most a tenth of the time. A failure raises a warning, and the tick goes on.
-- Concurrency: one call at a time, and not while another session folds counts; a second call leaves
-- the work to the first. Never waits.
create or replace function headrace._sample_history(t timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    size constant int := 50;        -- queues that are looked at together
    began constant timestamptz := clock_timestamp();
    moment timestamptz := date_bin(interval '5 seconds', t, timestamptz 'epoch');
    -- One slow sample is a hiccup, two in a row are the actual cost.
    pause constant interval := make_interval(secs => coalesce(
        (select case when count(s.took) = 2 then 10 * min(s.took) end
         from (select s.took from headrace.samplings s where s.step = 5 and s.at < moment order by s.at desc
               limit 2) s), 0));
    newest headrace.samplings;
    part int[];
    last bigint;
begin
    if not headrace._try_lock('counts') then
        return;
    end if;
    select s.* into newest from headrace.samplings s where s.step = 5 order by s.at desc limit 1;
    if newest.done is not null and newest.at between moment - interval '5 minutes' and moment then
        last := newest.reached;     -- this tick goes on with it
    elsif exists (select from headrace.samplings s where s.step = 5
                      and (s.at = moment or s.at > moment - pause and s.at < moment)) then
        return;
    else
        last := newest.reached;
        newest := row(5, moment, headrace._last_outcome(t - interval '2 seconds'), 0, 0, null);
        newest.reached := greatest(newest.reached, last);
        last := coalesce(last, newest.reached);
    end if;
    begin
        while newest.done is not null and clock_timestamp() < began + interval '0.05 seconds' loop
            part := array(select headrace._waiting_queues(newest.done, size));
            perform headrace._store_sample(newest.at, part, last, newest.reached, t);
            newest.done := part[size];
            last := newest.reached;
        end loop;
    exception when others then
        raise warning 'headrace: to sample the queues has failed: %', sqlerrm;
        newest.done := null;
    end;
    insert into headrace.samplings as s (step, at, reached, took, done, looked_at)
    select step, date_bin(make_interval(secs => step), newest.at, timestamptz 'epoch'), newest.reached,
           case when step = 5 then newest.took + extract(epoch from clock_timestamp() - began) end,
           case when step = 5 then newest.done end, case when step = 5 then t end
    from unnest('{5,20,120,480,3600}'::int[]) step
    where step = 5 or newest.done is null
    on conflict (step, at) do update set reached = excluded.reached, took = excluded.took, done = excluded.done,
        looked_at = excluded.looked_at;
end $$;
