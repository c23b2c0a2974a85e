-- The filter of a caller of events, checked and normalised.
-- Raises QU001.
create or replace function headrace._checked_filter(
    q headrace.queues, statuses text[], types text[], tags text[], all_tags boolean, since timestamptz,
    until timestamptz, key text, orphaned boolean, orphan_after interval
) returns headrace.wanted
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    known constant text[] := '{PENDING,PROCESSING,COMPLETED,COMPLETED_WITH_ERRORS,FAILED,CANCELLED}';
    wanted headrace.wanted;
begin
    if not statuses <@ known or statuses = '{}' then
        raise exception using errcode = 'QU001',
            message = 'a status is PENDING, PROCESSING, COMPLETED, COMPLETED_WITH_ERRORS, FAILED or CANCELLED';
    elsif orphaned and (orphan_after is null or orphan_after < interval '0') then
        raise exception using errcode = 'QU001', message = 'orphan_after is a time that has passed';
    end if;
    wanted.statuses := coalesce(statuses, known);
    if orphaned then
        wanted.statuses := case when 'PROCESSING' = any (wanted.statuses) then '{PROCESSING}'::text[] else '{}' end;
        wanted.orphaned_since := headrace._now() - orphan_after;
    end if;
    if types is not null or tags is not null then
        wanted.routes := headrace._filtered_routes(q.namespace, types, tags, coalesce(all_tags, false));
    end if;
    wanted.since := coalesce(since, '-infinity');
    wanted.until := coalesce(until, 'infinity');
    wanted.key := key;
    wanted.unfiltered := wanted.routes is null and since is null and until is null and key is null
        and not coalesce(orphaned, false);
    return wanted;
end $$;
