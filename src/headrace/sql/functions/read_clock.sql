-- Notes what the clock shows, for retention_clock, and notices that it was set back: then what was planned in the future that did not
-- come is made anew, see mend_times. Returns whether that was done. Every tick calls it, before anything else.
-- It is done again a minute later: a call that read the clock before it was set back may commit after this. Once a minute it is
-- looked, too, for what was planned while no tick read the clock: see is_ahead.
-- A reading lies ahead of now only if the clock went wrong, or goes wrong now. The newest is renewed once a minute, and five minutes
-- after the one before it there is another: twelve of them take an hour, however many tick, and a clock that is wrong
-- for a minute makes one or two. A minute back is no step: clocks are corrected by as much.
-- Concurrency: one at a time; the second to come leaves it to the first. Never waits.
create or replace function headrace.read_clock(t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    newest timestamptz[] := array(select r.at from headrace.clock_readings r order by r.at desc limit 2);
    mended boolean := false;
    is_first boolean;
begin
    if newest[1] between t - interval '1 minute' and t + interval '1 minute' or not headrace.try_lock('clock') then
        return false;
    end if;
    is_first := coalesce(newest[1] > t, false);
    if is_first or exists (select from headrace.upkeep u where u.task = 'times') or headrace.is_ahead(t) then
        begin
            mended := headrace.mend_times(t);
            delete from headrace.upkeep u where mended and u.task = 'times';
            if mended and is_first then
                insert into headrace.upkeep (task, next_at) values ('times', t + interval '1 minute');
                delete from headrace.clock_readings r where r.at > t;
                perform headrace.log_action(null, null, 'mend_times', null, jsonb_build_object('was', newest[1], 'is', t), self => 'headrace');
                raise warning 'headrace: the database''s clock was set back from % to %: what was planned from the later time is planned anew', newest[1], t;
            end if;
        exception when others then
            perform headrace.put_off('planning anew after the clock was set back', sqlstate, sqlerrm);
            return false;
        end;
        if not mended then
            return false;
        end if;
        newest := array(select r.at from headrace.clock_readings r order by r.at desc limit 2);
    end if;
    if newest[1] - newest[2] < interval '5 minutes' then
        update headrace.clock_readings r set at = t where r.at = newest[1];
    else
        insert into headrace.clock_readings (at) values (t) on conflict do nothing;
        delete from headrace.clock_readings r
        where r.at < (select o.at from headrace.clock_readings o order by o.at desc offset 11 limit 1);
    end if;
    return mended;
end $$;
