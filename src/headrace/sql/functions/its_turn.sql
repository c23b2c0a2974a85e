-- Whether nothing unsuspected of the given pairs stands before a suspect.
create or replace function headrace.its_turn(suspect headrace.ready, pairs headrace.hint[], sweep boolean) returns boolean
language plpgsql
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_nestloop = on
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return not exists (
        select from unnest(pairs) k
        join headrace.ready r on r.queue = its_turn.suspect.queue and not r.suspect and r.priority = k.priority and r.route = k.route
                             and r.seq >= case when sweep then 0 else k.low end
        where k.priority < its_turn.suspect.priority or k.priority = its_turn.suspect.priority and r.seq < its_turn.suspect.seq);
end $$;
