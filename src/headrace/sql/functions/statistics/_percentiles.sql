-- Percentiles of the times in a histogram of history, in seconds: exact to the bucket, and
-- interpolated within it as if the times were spread evenly. Null: the histogram is empty.
create or replace function headrace._percentiles(histogram int[], shares float8[]) returns float8[]
language sql immutable strict
set search_path = pg_catalog, pg_temp
as $$
    with bucket as (
        select h.bucket, h.size, sum(h.size) over (order by h.bucket) as until, sum(h.size) over () as attempts,
               case when h.bucket = 1 then 0 else power(2, (h.bucket - 2) / 3.0::float8) end as low,
               power(2, (h.bucket - 1) / 3.0::float8) as high
        from unnest(histogram) with ordinality as h(size, bucket)
    )
    select array_agg((b.low + (b.high - b.low) * (s.share * b.attempts - (b.until - b.size)) / b.size) / 1000
                     order by s.n)
    from unnest(shares) with ordinality as s(share, n)
    cross join lateral (
        select b.* from bucket b where b.size > 0 and b.until >= s.share * b.attempts order by b.bucket limit 1
    ) b
$$;
