-- Refuses a number that is in use already: see ids_behind. Raises QU042.
create or replace function headrace._raise_ids_behind(id bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception using errcode = 'QU042',
        message = format(
            'the sequence headrace.ids is behind its tables: it gave the number %s, which is taken, and nothing '
            'was published', id),
        hint = 'headrace repair, or select headrace.repair_ids(), brings it forward';
end $$;
