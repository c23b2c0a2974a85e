-- Whether a delivery was run again after this end of it. PostgreSQL inlines this into the statement
-- that calls it: no SET clause.
create or replace function headrace._is_run_again(of_queue int, of_event bigint, after bigint, since timestamptz)
returns boolean
language sql stable
as $$
    select exists (
        select from headrace.outcomes r
        where r.action = 'RERUN' and r.bucket = headrace._bucket(of_event) and r.queue = of_queue
          and r.id > after and r.at >= since
          and of_event = any (r.events))
$$;
