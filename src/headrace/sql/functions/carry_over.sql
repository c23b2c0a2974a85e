-- Before a month of events goes: the bodies of unfinished deliveries are carried over, without a lock on them, because nothing becomes
-- alive in a month that is past, but for two: redrive carries over what it revives, and queues that begin in the past are not
-- filled meanwhile (55P03 when one is just being filled: later, then). What ends meanwhile, `forget` removes.
-- Dead letters have their bodies with them.
create or replace function headrace.carry_over(parent text, name text, ends_at timestamptz) returns void
language plpgsql
as $$
begin
    if parent <> 'events' then
        return;
    elsif not headrace.try_lock('fill') then     -- see tick_queues
        raise exception using errcode = '55P03', message = 'a queue is being filled with past events';
    end if;
    execute format('insert into headrace.events_carried
                    select e.* from headrace.%I e join headrace.live(%L) l on l.event = e.id
                    on conflict do nothing', name, ends_at);
end $$;
