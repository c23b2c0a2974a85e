-- The slot of a key: see the table slots. Clients compute the same. A namespace has no slash, so the
-- two cannot be mistaken for another namespace and key.
create or replace function headrace._slot(namespace text, key text) returns int
language sql stable parallel safe
as $$
    select get_byte(d, 0) % 4 * 256 + get_byte(d, 1) from sha256(convert_to(namespace || '/' || key, 'UTF8')) d
$$;
