-- The upkeep that one of some hundred calls does where no tick runs, so that a database in which
-- only these functions are called does not grow for ever: folds the counts, and, once an hour,
-- removes rows that are no longer needed. Bounded: some thousand rows. Months are made and retired
-- only where this statement is a transaction of its own, as far as can be seen: their locks last
-- until the transaction ends, and every other session would wait for a long one.
-- Concurrency: one call at a time; never waits longer than 50 ms for a lock. A failure here raises
-- a warning, and the caller's call goes on.
create or replace function pgmq._keep_up() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '50ms'
as $$
declare
    t constant timestamptz := headrace._now();
    tidied record;
begin
    if current_setting('transaction_isolation') <> 'read committed'
       or exists (select from headrace.samplings s where s.step = 5 and s.at > t - interval '10 minutes'
                      and coalesce(s.looked_at, s.at) between t - interval '1 minute' and t + interval '1 minute') then
        return;
    end if;
    perform headrace._fold_counts('-infinity', 10000);
    if transaction_timestamp() = statement_timestamp() and clock_timestamp() < statement_timestamp() + interval '100 ms'
        then
        perform headrace._read_clock(t);
        perform headrace._upkeep();
    elsif not exists (select from headrace.upkeep u where u.task = 'tidy' and u.next_at > t)
        and headrace._try_lock('upkeep') then
        select * into tidied from headrace._clean_up(false);
        delete from headrace.upkeep u where u.task = 'tidy';
        insert into headrace.upkeep (task, next_at)
        values ('tidy', t + coalesce(tidied.failed, case when tidied.more then interval '1 minute'
                                                         else interval '1 hour' end));
    end if;
exception when others then
    raise warning 'headrace: the upkeep by pgmq failed and will be tried again: %', sqlerrm;
end $$;
