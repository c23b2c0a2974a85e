-- What pg_cron calls: ticks until nothing more is due, for most of a minute at most, each time in a transaction of its own.
create or replace procedure headrace_cron.tick()
language plpgsql
as $$
declare
    ends constant timestamptz := clock_timestamp() + interval '50 seconds';
    more boolean := true;
begin
    while more and clock_timestamp() < ends loop
        commit;     -- also the first time: what CALL began may have another isolation level
        set transaction isolation level read committed;
        more := (select t.more from headrace.tick() t);
    end loop;
end $$;
