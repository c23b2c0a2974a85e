-- Whether a worker has no suspect in work: two at once, and nobody would know again which of them killed it. A worker is a
-- process, by its name; those without a name are all strangers. The lock is for its threads: they ask one after the other.
create or replace function headrace.may_have_a_suspect(q headrace.queues, worker text) returns boolean
language plpgsql
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_nestloop = on
as $$
#variable_conflict use_column
begin
    if may_have_a_suspect.worker = '' then
        return true;
    end if;
    return pg_try_advisory_xact_lock(1212433736, hashtext(may_have_a_suspect.worker))
       and not exists (
           select from headrace.held h join headrace.leases l on l.id = h.lease
           where h.queue = q.id and h.suspect and l.worker = may_have_a_suspect.worker and l.until >= headrace.now());
end $$;
