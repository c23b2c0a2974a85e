-- Does the work of tick, for a claim that found nothing; returns whether time has made something
-- due.
create or replace function headrace._tick_for_claim() returns boolean
language plpgsql
as $$
begin
    return headrace._tick_due(1000) + headrace._tick_expired(100) + (headrace._tick_schedules(100)).fired > 0;
end $$;
