-- Whether no other delivery of the given pairs stands before a suspect: the oldest delivery of a
-- pair decides.
create or replace function headrace._suspect_is_next(
    suspect headrace.ready, pairs headrace.hint[], sweep boolean
) returns boolean
language plpgsql
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return not exists (
        select from unnest(pairs) k
        where k.priority <= _suspect_is_next.suspect.priority
          and (select k.priority < _suspect_is_next.suspect.priority or r.seq < _suspect_is_next.suspect.seq
               from headrace.ready r
               where r.queue = _suspect_is_next.suspect.queue and not r.suspect and r.priority = k.priority
                 and r.route = k.route
                 and r.seq >= case when sweep then 0 else k.low end
               order by r.seq limit 1));
end $$;
