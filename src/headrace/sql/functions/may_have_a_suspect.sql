-- Whether a worker has no suspect in work: two at once, and nobody would know again which of them killed it. A worker is a
-- process, by its name; those without a name are all strangers. As it gets one at a time, only its last can be in work.
-- The lock is for its threads: they ask one after the other.
create or replace function headrace.may_have_a_suspect(q headrace.queues, worker text) returns boolean
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
    if may_have_a_suspect.worker = '' then
        return true;
    elsif not headrace.try_lock(format('suspect %s %s', q.id, may_have_a_suspect.worker)) then
        return false;
    end if;
    select l.* into last from headrace.leases l
    where l.queue = q.id and l.worker = may_have_a_suspect.worker and l.suspect
    order by l.id desc limit 1;
    return last.id is null or last.until < headrace.now() or not exists (select from headrace.held h where h.lease = last.id);
end $$;
