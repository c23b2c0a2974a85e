create or replace trigger follow_by_pg_cron
after insert or delete or update of cron_expression, timezone, active on headrace.scheduled_tasks
for each row execute function headrace_cron.follow();

update headrace.scheduled_tasks set active = active;    -- each is followed

do $$
begin
    if not exists (select from pg_extension where extname = 'pg_cron') then
        raise notice using message = format(
            'headrace: pg_cron lives in another database. There, run: select cron.schedule_in_database('
            '''headrace_tick'', ''* * * * *'', ''call headrace_cron.tick()'', %L)', current_database());
        return;
    end if;
    begin
        perform cron.schedule('headrace_tick', '10 seconds', 'call headrace_cron.tick()');
    exception when invalid_parameter_value then     -- before pg_cron 1.5
        perform cron.schedule('headrace_tick', '* * * * *', 'call headrace_cron.tick()');
    end;
end $$;
