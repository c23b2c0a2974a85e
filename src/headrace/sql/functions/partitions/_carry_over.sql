-- Carries over the bodies of unfinished deliveries before a month of events is retired. It locks no
-- delivery, because no delivery becomes live in a past month, with two exceptions: redrive and rerun
-- carry over the events that they revive, and queues that begin in the past are not filled meanwhile
-- (55P03 while one is being filled: the caller retries later). `_forget` removes the bodies of
-- deliveries that end meanwhile. Dead letters store their bodies themselves.
create or replace function headrace._carry_over(parent text, name text, ends_at timestamptz) returns void
language plpgsql
as $$
begin
    if parent <> 'events' then
        return;
    elsif not headrace._try_lock('fill') then     -- see _tick_queues
        raise exception using errcode = '55P03', message = 'a queue is being filled with past events';
    end if;
    execute format('insert into headrace.events_carried
                    select e.* from headrace.%I e join headrace._unfinished_events(%L) l on l.event = e.id
                    on conflict do nothing', name, ends_at);
end $$;
