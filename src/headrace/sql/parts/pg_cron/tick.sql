-- The procedure that pg_cron calls: ticks until nothing more is due, for most of a minute at most,
-- each tick in a transaction of its own. A procedure that commits can have no search_path of its
-- own, so every name has its schema here.
create or replace procedure headrace_cron.tick()
language plpgsql
as $$
declare
    ends constant pg_catalog.timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) interval '50 seconds';
    more boolean := true;
begin
    while more and pg_catalog.clock_timestamp() operator(pg_catalog.<) ends loop
        commit;     -- also the first time: the transaction of CALL may have another isolation level
        set transaction isolation level read committed;
        more := (select t.more from headrace.tick() t);
    end loop;
end $$;
