-- Releases the ordering keys of attempts that have ended, for the next delivery of each. A delivery
-- that waits for its retry keeps its key.
create or replace function headrace._release_ended_keys(
    q headrace.queues, t timestamptz, taken headrace.taken[]
) returns void
language plpgsql
as $$
begin
    perform headrace._release_keys(q, headrace._log_time(t, (select max(k.picked_at) from unnest(taken) k)), array(
        select k from unnest(taken) k
        where not exists (select from headrace.delayed d where d.event = k.event and d.queue = q.id)));
end $$;
