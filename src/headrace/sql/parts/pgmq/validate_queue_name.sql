-- Raises QU001 for a name that pgmq would refuse, or that cannot be a type of events.
create or replace function pgmq.validate_queue_name(queue_name text) returns void
language plpgsql immutable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if queue_name is null or length(queue_name) not between 1 and 47 then
        raise exception using errcode = 'QU001', message = 'the name of a pgmq queue has 1 to 47 characters';
    elsif queue_name ~ '[$;''*,/[:cntrl:]]|--' or queue_name <> btrim(queue_name) or lower(queue_name) = 'main' then
        raise exception using errcode = 'QU001', message = format('%L is not a valid name of a pgmq queue', queue_name),
            hint = 'it has no $ ; '' -- * , / or control character, no blank at its ends, and is not main';
    end if;
end $$;
