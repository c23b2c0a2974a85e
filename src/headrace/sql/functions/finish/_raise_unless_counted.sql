-- Raises the error of a verdict of finish, for a caller that finished one delivery and expects it
-- to count.
create or replace function headrace._raise_unless_counted(v headrace.verdict) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if v.verdict = 'lost' then
        raise exception using errcode = 'QU020',
            message = 'the lease is lost: this attempt is not the current one, and nothing was changed';
    elsif v.verdict = 'conflict' then
        raise exception using errcode = 'QU021', message = format('this attempt has already ended as %s at %s',
                                                                  v.action, v.at);
    end if;
end $$;
