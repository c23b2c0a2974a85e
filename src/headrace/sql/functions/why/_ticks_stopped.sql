-- A clause for the sentences of why: that nothing runs tick, if so.
create or replace function headrace._ticks_stopped() returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case when u.stopped
                then coalesce(', but none has run since ' || headrace._spoken_time(nullif(u.last_at, '-infinity')),
                              ', but none has ever run')
                else '' end
    from headrace.ticking() u
$$;
