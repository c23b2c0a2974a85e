-- The part of the upkeep that removes rows: what nobody will ask for again, and what keeps an ordering key from its turn. A step of each,
-- or, `at_once`, all of them. A step that fails keeps no other from its work: failed and problem tell when to try again, and what it was.
create or replace function headrace.tidy(at_once boolean, out more boolean, out failed interval, out problem text)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    t constant timestamptz := headrace.now();
    step text;
    again boolean;
    later interval;
begin
    more := false;
    foreach step in array '{times,marks,rows,"ordering keys","idempotency keys",progress,"deleted queues",sent,routes}'::text[] loop
        begin
            loop
                again := case step
                    when 'times' then headrace.is_ahead(t) and not headrace.mend_times(t)
                    when 'marks' then headrace.mark(t)
                    when 'rows' then headrace.forget()
                    when 'ordering keys' then headrace.mend_keys() < 0
                    when 'idempotency keys' then headrace.forget_keys(10000)
                    when 'progress' then headrace.forget_progress(1000)
                    when 'deleted queues' then headrace.forget_queues(10000)
                    when 'sent' then headrace.forget_sent(t, 10000)
                    else headrace.forget_routes(1000)
                end;
                more := more or again;
                exit when not (again and at_once) or step = 'times';
            end loop;
        exception when others then
            later := headrace.put_off('tidying of ' || step, sqlstate, sqlerrm);
            failed := greatest(failed, later);
            problem := coalesce(problem, case when later > interval '0' then 'tidying of ' || step || ': ' || sqlerrm end);
        end;
    end loop;
end $$;
