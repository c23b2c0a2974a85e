-- The sum of two histograms; missing buckets at an end count as zero.
create or replace function headrace._added_histograms(one int[], other int[]) returns int[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select array_agg(coalesce(h.one, 0) + coalesce(h.other, 0) order by h.bucket)
    from unnest(one, other) with ordinality as h(one, other, bucket)
$$;
