-- Raises the reason that keeps an administrator from changing a delivery of this status: it has
-- ended (QU024), or it never existed (QU012).
create or replace function headrace._raise_if_ended(
    event_id bigint, queue text, status text, at timestamptz
) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if status is null then
        raise exception using errcode = 'QU012', message = format('event %s was not delivered to the queue %L',
                                                                  event_id, queue);
    elsif status not in ('PENDING', 'PROCESSING') then
        raise exception using errcode = 'QU024', message = format('event %s has already ended as %s at %s', event_id,
                                                                  status, at);
    end if;
end $$;
