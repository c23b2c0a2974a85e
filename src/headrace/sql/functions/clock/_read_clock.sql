-- Records the clock's time, for _retention_clock, and detects that the clock was set back. Times
-- that were planned by the clock that was ahead are then planned again, see
-- _replan_after_clock_change. Returns whether that was done. Every tick calls this function first.
-- The planning is repeated a minute later: a call that read the clock before it was set back may
-- commit after this one. Once a minute the function also looks for rows that were dated ahead while
-- no tick read the clock: see _clock_was_ahead. A reading lies ahead of now only if the clock was
-- wrong, or is wrong now. The newest reading is updated once a minute, and five minutes after the
-- one before it a new one is added: twelve of them take an hour, for any number of nodes that tick,
-- and a clock that is wrong for a minute makes one or two. A minute back is no step: clocks are
-- corrected by as much.
-- Concurrency: one at a time; the second to come leaves it to the first. Never waits.
create or replace function headrace._read_clock(t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    newest timestamptz[] := array(select r.at from headrace.clock_readings r order by r.at desc limit 2);
    mended boolean := false;
    is_first boolean;
begin
    if newest[1] between t - interval '1 minute' and t + interval '1 minute' or not headrace._try_lock('clock') then
        return false;
    end if;
    is_first := coalesce(newest[1] > t, false);
    if is_first or exists (select from headrace.upkeep u where u.task = 'times') or headrace._clock_was_ahead(t) then
        begin
            mended := headrace._replan_after_clock_change(t);
            delete from headrace.upkeep u where mended and u.task = 'times';
            if mended and is_first then
                insert into headrace.upkeep (task, next_at) values ('times', t + interval '1 minute');
                delete from headrace.clock_readings r where r.at > t;
                perform headrace._log_action(null, null, 'mend_times', null,
                                             jsonb_build_object('was', newest[1], 'is', t), self => 'headrace');
                raise warning using message = format(
                    'headrace: the database''s clock was set back from %s to %s: what was planned from the later '
                    'time is planned anew', newest[1], t);
            end if;
        exception when others then
            perform headrace._retry_upkeep_in('planning anew after the clock was set back', sqlstate, sqlerrm);
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
