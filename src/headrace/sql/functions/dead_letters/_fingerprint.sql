-- The fingerprint of a kind of error: a digest of its most informative line, without the parts that
-- differ from one event to the next: ids, quoted text, paths and numbers.
create or replace function headrace._fingerprint(reason text, error text) returns text
language plpgsql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
    line text := headrace._error_line(reason, error);
begin
    line := regexp_replace(line, '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}',
                           '<id>', 'g');
    line := regexp_replace(line, E'(^|\\W)(''[^'']*''|"[^"]*"|`[^`]*`)', E'\\1<text>', 'g');
    line := regexp_replace(line, E'([A-Za-z]:\\\\|/)[\\w.@~+-]+([\\\\/][\\w.@~+-]*)+', '<path>', 'g');
    line := regexp_replace(line, E'\\m(0[xX][0-9a-fA-F]+|[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,})\\M', '<id>', 'g');
    line := regexp_replace(line, '[0-9]+([.,:][0-9]+)*', '<n>', 'g');
    return left(md5(line), 12);
end $$;
