-- The highest event up to a number for which the log of a queue has an end, or at least an attempt;
-- null: none, or none from bucket `low` on, or none among the `most` entries of the log's index
-- below it (most null: no limit).
create or replace function headrace._last_finished(queue int, bound bigint, low bigint, most int) returns bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
    its_bucket bigint := headrace._bucket(bound);
    found_one bigint;
begin
    loop
        found_one := (
            select max(m.event) from headrace.outcomes o cross join lateral unnest(o.events) as m(event)
            where o.bucket = its_bucket and o.queue = _last_finished.queue and m.event <= bound);
        if found_one is not null then
            return found_one;
        end if;
        its_bucket := (
            select e.bucket from (
                select o.bucket, o.queue from headrace.outcomes o
                where o.bucket < its_bucket and o.bucket >= low
                order by o.bucket desc limit most
            ) e
            where e.queue = _last_finished.queue
            order by e.bucket desc limit 1);
        if its_bucket is null then
            return null;
        end if;
    end loop;
end $$;
