-- Raises the reason for which an event cannot be run again in a queue: see rerun.
create or replace function headrace._raise_unless_rerunnable(q headrace.queues, stood headrace.shown) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if stood.status in ('PENDING', 'PROCESSING') then
        raise exception using errcode = 'QU025',
            message = format('event %s is unfinished, its status is %s: only an event that has ended is run again',
                             stood.id, stood.status);
    elsif headrace._is_erased(stood.id) then
        raise exception using errcode = 'QU024',
            message = format('event %s was erased: there is nothing left to run again', stood.id);
    elsif stood.reason is not null then
        raise exception using errcode = 'QU024',
            message = format('event %s is a dead letter: redrive it instead', stood.id);
    elsif stood.status in ('FAILED', 'COMPLETED_WITH_ERRORS') then
        raise exception using errcode = 'QU024',
            message = format('event %s has ended as %s, and its dead letter was purged: publish it anew',
                             stood.id, stood.status);
    elsif stood.status is null then
        perform headrace._raise_if_ended(stood.id, q.name, null, null);
    end if;
end $$;
