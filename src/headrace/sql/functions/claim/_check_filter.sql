-- Raises QU001 for an invalid filter.
create or replace function headrace._check_filter(types text[], tags text[]) returns void
language plpgsql immutable
as $$
begin
    if cardinality(types) not between 1 and 1000 or array_position(types, null) is not null
       or cardinality(tags) not between 1 and 1000 or array_position(tags, null) is not null then
        raise exception using errcode = 'QU001',
            message = 'a filter names 1 to 1000 types and 1 to 1000 tags, or null for all of them';
    end if;
end $$;
