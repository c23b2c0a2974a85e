-- The problem that makes a JSON value unreadable for some JSON readers, whatever its size; null:
-- none. Valid jsonb is not enough: 1e4400 breaks most JSON readers, 81 kB of 1e131071 prints as
-- more than a gigabyte, and ten thousand brackets overflow stacks.
create or replace function headrace._json_problem(value jsonb) returns text
language sql immutable parallel safe
as $$
    select case
        when value @? 'strict $.**{150 to last}'
            then 'QU002 the payload is nested more than 150 deep'
        when value @? 'strict $.** ? (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308
                                 || (@ > -4.9e-324 && @ < 4.9e-324 && @ != 0))'
            then 'QU002 the payload has a number outside the range of a double'
    end
$$;
