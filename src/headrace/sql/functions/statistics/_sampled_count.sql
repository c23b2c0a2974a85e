-- The estimated number of deliveries of a queue in a place, ready, delayed or dead_letters: counted
-- on some hundred of its pages, chosen at random. For places with more deliveries than are worth
-- counting.
create or replace function headrace._sampled_count(place text, queue int) returns bigint
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    pages constant float8 := pg_relation_size(format('headrace.%I', place)::regclass) / current_setting(
        'block_size')::int;
    percent constant float8 := least(100, 100 * 500 / greatest(pages, 1));
    seen bigint;
begin
    case place
        when 'ready' then
            select sum(coalesce(cardinality(r.pack), 1)) into seen
            from headrace.ready r tablesample system (percent) where r.queue = _sampled_count.queue and r.key is null;
            seen := coalesce(seen, 0) + (select count(*) from headrace.keyed k tablesample system (percent)
                                         where k.queue = _sampled_count.queue);
        when 'delayed' then
            select count(*) into seen from headrace.delayed d tablesample system (percent)
            where d.queue = _sampled_count.queue;
        when 'dead_letters' then
            select count(*) into seen from headrace.dead_letters x tablesample system (percent)
            where x.queue = _sampled_count.queue;
    end case;
    return coalesce(seen, 0) / percent * 100;
end $$;
