-- The part of the upkeep that removes rows: rows that are no longer needed, and rows that block an
-- ordering key. One step of each kind, or, `at_once`, all steps. A step that fails does not hold up
-- the others: failed is the time until the retry, problem the error.
create or replace function headrace._clean_up(at_once boolean, out more boolean, out failed interval, out problem text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    t constant timestamptz := headrace._now();
    step text;
    again boolean;
    later interval;
begin
    more := false;
    foreach step in array '{times,marks,rows,"ordering keys","idempotency keys",'
                          '"unique keys","debounce keys",progress,"deleted queues",sent,limits,routes}'::text[] loop
        begin
            loop
                again := case step
                    when 'times' then headrace._clock_was_ahead(t) and not headrace._replan_after_clock_change(t)
                    when 'marks' then headrace._store_id_mark(t)
                    when 'rows' then headrace._forget()
                    when 'ordering keys' then headrace._mend_keys() < 0
                    when 'idempotency keys' then headrace._forget_keys(10000)
                    when 'unique keys' then headrace._forget_unique_keys(1000)
                    when 'debounce keys' then headrace._forget_debounce_keys(1000)
                    when 'progress' then headrace._forget_progress(1000)
                    when 'deleted queues' then headrace._forget_queues(10000)
                    when 'sent' then headrace._forget_sent(t, 10000)
                    when 'limits' then headrace._forget_limits(10000)
                    else headrace._forget_routes(1000)
                end;
                more := more or again;
                exit when not (again and at_once) or step = 'times';
            end loop;
        exception when others then
            later := headrace._retry_upkeep_in('tidying of ' || step, sqlstate, sqlerrm);
            failed := greatest(failed, later);
            problem := coalesce(problem, case when later > interval '0' then 'tidying of ' || step || ': '
                                              || sqlerrm end);
        end;
    end loop;
end $$;
