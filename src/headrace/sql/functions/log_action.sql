-- Writes down what somebody did on purpose, in the transaction that does it. home: the namespace, null for what concerns them all.
-- actor: the session's user if nobody is named. Raises QU001.
create or replace function headrace.log_action(
    home int, actor text, action text, target text, details jsonb default null
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if length(log_action.actor) > 200 then
        raise exception using errcode = 'QU001', message = 'the name of an actor has at most 200 characters';
    end if;
    insert into headrace.admin_log (at, namespace, actor, action, target, details)
    values (headrace.now(), home, coalesce(nullif(log_action.actor, ''), session_user), log_action.action, log_action.target,
            nullif(jsonb_strip_nulls(log_action.details), '{}'));
end $$;
