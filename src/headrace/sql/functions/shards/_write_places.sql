-- Writes place and _id_at for a shard, with its stride in them. A look into the table headrace.shard
-- would cost every claim and every look-up, and could be no condition of an index. Sessions that have
-- planned with the former functions plan anew.
-- Below the mark a number is its own place, and the places of a shard go on above it.
create or replace function headrace._write_places(own headrace.shard) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    bits constant int := log(2, own.stride);
    -- what the places above the mark are ahead of the numbers without their last bits
    ahead constant bigint := case when own.mark = 0 then 0 else own.mark - (own.mark >> bits) end;
    definition constant text := 'create or replace function headrace.%s(%s bigint) returns bigint '
                                'language sql immutable parallel safe as $body$ select %s $body$';
begin
    execute format(
        definition, 'place', 'id',
        case when own.mark = 0 then format('id >> %s', bits)
             else format('case when id <= %s then id else (id >> %s) + %s end', own.mark, bits, ahead) end);
    execute format(
        definition, '_id_at', 'place',
        case when own.mark = 0 then format('(place << %s) + %s', bits, own.number)
             else format('case when place <= %s then place else place - %s << %s end', own.mark, ahead, bits) end);
end $$;
