-- Whether there is a pack in one of these pairs. For a claim that has found nothing: another claim
-- has the pack locked, and will soon have opened it.
create or replace function headrace._pack_is_being_opened(
    q headrace.queues, pairs headrace.hint[], sweep boolean
) returns boolean
language plpgsql stable
as $$
#variable_conflict use_column
begin
    return exists (
        select from unnest(pairs) k
        where (select r.pack is not null from headrace.ready r
               where r.queue = q.id and not r.suspect and r.priority = k.priority and r.route = k.route
                 and r.seq >= case when sweep then 0 else k.low end
               order by r.seq limit 1));
end $$;
