-- The numbers that a field of a cron expression names, in capitals; null: the field is invalid.
-- Fields are counted from 1, the seconds. 0 is a last day (L, LW). The function accepts the same
-- syntax as the clients, which compute the instants.
create or replace function headrace._cron_field(field int, said text) returns int[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    low constant int := ('{0,0,0,1,1,0}'::int[])[field];
    high constant int := ('{59,59,23,31,12,7}'::int[])[field];
    names constant text[] := case field when 5 then '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}'
                                        when 6 then '{SUN,MON,TUE,WED,THU,FRI,SAT}' end;
    item text;
    part text[];
    bounds numeric[];
    step numeric;
    matched int[] := '{}';
begin
    foreach item in array string_to_array(said, ',') loop
        if field = 4 and item ~ '^LW?(/0*[1-9][0-9]*)?$' then
            matched := matched || 0;
            continue;
        elsif field = 6 and item ~ '^([0-9]+L|[0-9A-Z]+#0*[1-5])$' then
            item := regexp_replace(item, 'L$|#.*$', '');
        end if;
        part := regexp_match(item, '^([*]|([0-9A-Z]+)(-([0-9A-Z]+))?)(/([0-9]+))?$');
        step := part[6]::numeric;
        if part is null or step = 0 then
            return null;
        end if;
        bounds := case when part[1] = '*' then array[low, high] else array(
            select coalesce(array_position(names, bound) - 1 + low,
                            case when bound ~ '^[0-9]+$' then bound::numeric end)
            from unnest(array[part[2], coalesce(part[4], part[2])]) with ordinality b (bound, n) order by n) end;
        if (bounds[1] between low and high and bounds[2] between bounds[1] and high) is not true then
            return null;
        elsif bounds[1] = bounds[2] and step is not null then
            bounds[2] := high;
        end if;
        matched := matched || array(select generate_series(bounds[1], bounds[2], coalesce(step, 1))::int);
    end loop;
    return nullif(matched, '{}');
end $$;
