-- Raises QU023: somebody has the delivery, or wherever it was looked for it had just left.
create or replace function headrace.on_the_move(event_id bigint) returns void
language plpgsql stable
as $$
begin
    raise exception using errcode = 'QU023',
        message = format('event %s is being claimed, finished or moved right now, and nothing was changed', event_id),
        hint = 'Try again in a moment.';
end $$;
