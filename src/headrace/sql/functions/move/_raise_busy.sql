-- Raises QU023: another session has the delivery, or it had just left every place that was
-- searched.
create or replace function headrace._raise_busy(event_id bigint) returns void
language plpgsql stable
as $$
begin
    raise exception using errcode = 'QU023',
        message = format('event %s is being claimed, finished or moved right now, and nothing was changed', event_id),
        hint = 'Try again in a moment.';
end $$;
