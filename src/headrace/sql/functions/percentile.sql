-- The time that a share of the attempts in a histogram of history stayed below, in seconds: exact to the bucket, and in it as if they were
-- spread evenly. Null: there are none.
create or replace function headrace.percentile(histogram int[], share float8) returns float8
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    with bucket as (
        select h.bucket, h.size, sum(h.size) over (order by h.bucket) as until, sum(h.size) over () as attempts
        from unnest(histogram) with ordinality as h(size, bucket)
    ),
    reached as (
        select b.*, case when b.bucket = 1 then 0 else power(2, (b.bucket - 2) / 3.0::float8) end as low,
               power(2, (b.bucket - 1) / 3.0::float8) as high
        from bucket b
        where b.size > 0 and b.until >= share * b.attempts
        order by b.bucket limit 1
    )
    select (low + (high - low) * (share * attempts - (until - size)) / size) / 1000 from reached
$$;
