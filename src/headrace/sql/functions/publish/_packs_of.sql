-- Ids, given in ascending order, cut where a bucket of 128 places begins: see Packs in 0_essay.
create or replace function headrace._packs_of(ids bigint[]) returns setof bigint[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    size constant int := cardinality(ids);
    first constant bigint := headrace.place(ids[1]);
begin
    if headrace.place(ids[size]) - first = size - 1 then    -- no other session drew one in between: slices will do
        return query
        select ids[greatest((b << 7) - first + 1, 1):least((b + 1 << 7) - first, size)]
        from generate_series(first >> 7, first + size - 1 >> 7) b;
    else
        return query select array_agg(i order by i) from unnest(ids) i group by headrace._pack(i);
    end if;
end $$;
