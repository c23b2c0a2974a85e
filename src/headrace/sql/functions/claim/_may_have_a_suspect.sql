-- Whether a worker has no suspect in progress: with two at once, a crash would not show which of
-- them killed it. A worker is a process, by its name; each worker without a name counts as a
-- different one. A worker gets one suspect at a time, so only its last can be in progress. The lock
-- makes the threads of a worker ask one after the other.
create or replace function headrace._may_have_a_suspect(q headrace.queues, worker text) returns boolean
language plpgsql
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    last headrace.leases;
begin
    if _may_have_a_suspect.worker = '' then
        return true;
    elsif not headrace._try_lock(format('suspect %s %s', q.id, _may_have_a_suspect.worker)) then
        return false;
    end if;
    select l.* into last from headrace.leases l
    where l.queue = q.id and l.worker = _may_have_a_suspect.worker and l.suspect
    order by l.id desc limit 1;
    return last.id is null or last.until < headrace._now()
        or not exists (select from headrace.held h where h.lease = last.id);
end $$;
