do $$
begin
    if exists (select from pg_extension where extname = 'pgmq') then
        raise exception using errcode = 'QU041', message =
            'The extension pgmq is installed in this database, and its schema is the one that --pgmq would make: use one or the other.';
    end if;
end $$;
