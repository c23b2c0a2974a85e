do $$
begin
    if exists (select from pg_extension where extname = 'pgmq') then
        raise exception using errcode = 'QU041', message =
            'The extension pgmq is installed in this database, and its schema is the one that --pgmq would make: '
            'use one or the other.';
    elsif exists (select from headrace.namespaces n where n.name = 'pgmq'
                      and n.metadata ->> 'made_by' is distinct from 'pgmq') then
        raise exception using errcode = 'QU041', message =
            'There is a namespace pgmq already, and it is not the one that --pgmq would make: delete it, then '
            'migrate again.';
    end if;
end $$;
