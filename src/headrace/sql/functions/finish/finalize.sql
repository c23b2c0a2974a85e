-- Ends one delivery for good, whatever its retry policy: COMPLETED without errors,
-- COMPLETED_WITH_ERRORS with some, or, by success, COMPLETED or FAILED. A delivery that did not
-- succeed is kept as a dead letter. Returns the status that is stored. A delivery that is already
-- finalized stays as it is, whatever this call says. attempt null: the caller knows the event
-- alone. It gets the status of a delivery that any caller has finalized.
-- Raises QU001: errors and success; QU020: the attempt is not the current one, or it is null and
-- the delivery is not finalized; QU021: the attempt has ended, and the delivery comes again. See
-- finish.
create or replace function headrace.finalize(
    namespace text, event bigint, attempt int, errors text[] default '{}', success boolean default null,
    queue text default 'main', lease bigint default null, ms int default null, code int default null,
    lease_token text default null
) returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v headrace.verdict;
begin
    if success and cardinality(errors) > 0 then
        raise exception using errcode = 'QU001',
            message = 'finalize got errors, and success: an event that has succeeded has no errors';
    end if;
    if finalize.attempt is null then
        v := headrace.finalized(finalize.namespace, finalize.event, finalize.queue);
        if v.action is null then
            raise exception using errcode = 'QU020',
                message = format('event %s is not finalized, and no attempt is named: nothing was changed',
                                 finalize.event);
        end if;
        return v.action;
    end if;
    select * into v from headrace.finish(
        finalize.namespace, finalize.queue, array[finalize.event], array[finalize.attempt], array[finalize.lease],
        array[finalize.ms], array[finalize.code],
        case when coalesce(success, coalesce(cardinality(errors), 0) = 0) then null
             else jsonb_build_object('1', jsonb_build_object(
                 'action', 'fail', 'error', array_to_string(errors, E'\n'), 'reason', 'Handler error',
                 'status', case when success is null then 'COMPLETED_WITH_ERRORS' else 'FAILED' end)) end,
        array[finalize.lease_token]);
    if not found then
        return 'COMPLETED';
    elsif v.verdict in ('repeated', 'conflict') then
        v.verdict := case when v.action in ('COMPLETED', 'COMPLETED_WITH_ERRORS', 'FAILED') and v.retry_at is null
                          then 'repeated' else 'conflict' end;
    end if;
    perform headrace._raise_unless_counted(v);
    return v.action;
end $$;
