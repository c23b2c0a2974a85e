-- The problem with a cron expression; null: none that shows without a calendar.
create or replace function headrace._cron_problem(expression text) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    said text[];
    matched int[];
    days int[];
begin
    if expression in ('@hourly', '@daily', '@midnight', '@weekly', '@monthly', '@yearly', '@annually') then
        return null;
    elsif expression ~ '^@' then
        return 'QU001 a cron expression of one word is @hourly, @daily, @midnight, @weekly, @monthly, @yearly or '
               '@annually';
    elsif expression is null or length(expression) > 200
          or expression !~ '^[-0-9A-Za-z*/,#]+( [-0-9A-Za-z*/,#]+){4,5}$' then
        return 'QU001 a cron expression has five fields, or six with seconds first, as in "0 2 * * *"';
    end if;
    said := string_to_array(upper(expression collate "C"), ' ');
    if cardinality(said) = 5 then
        said := '0'::text || said;
    end if;
    for field in 1..6 loop
        matched := headrace._cron_field(field, said[field]);
        if matched is null then
            return format(
                'QU001 the %s of a cron expression is %s, with lists (1,2), ranges (1-5) and steps (*/2), not %L',
                ('{second,minute,hour,"day of the month",month,"day of the week"}'::text[])[field],
                ('{"0 to 59","0 to 59","0 to 23","1 to 31, L or LW","1 to 12, or JAN to DEC","0 to 7, or SUN to '
                 'SAT"}'::text[])[field],
                said[field]);
        elsif field = 4 then
            days := matched;
        elsif field = 5 and (said[4] ~ '^[*]' or said[6] ~ '^[*]')
              and (select min(d) from unnest(days) d)
                  > (select max(case when m = 2 then 29 when m in (4, 6, 9, 11) then 30 else 31 end)
                     from unnest(matched) m) then
            return format('QU001 the cron expression %L never fires: no such month has that day', expression);
        end if;
    end loop;
    return null;
end $$;
