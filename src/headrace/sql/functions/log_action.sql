-- Writes down what somebody did on purpose, in the transaction that does it. home: the namespace, null for what concerns them all.
-- said: the actor as the caller names it. It is the actor only for a caller with the owner's rights, see actor; else details have it
-- as on_behalf_of, and as session_user who has set the role that acted. self: the actor, where it is Headrace itself. Raises QU001.
create or replace function headrace.log_action(
    home int, said text, action text, target text, details jsonb default null, self text default null
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    self := coalesce(self, headrace.actor(said));
    insert into headrace.admin_log (at, namespace, actor, action, target, details)
    values (headrace.now(), home, self, log_action.action, log_action.target,
            nullif(jsonb_strip_nulls(coalesce(log_action.details, '{}')
                                     || jsonb_build_object('on_behalf_of', nullif(nullif(said, ''), self),
                                                           'session_user', case when self = headrace.caller() then nullif(session_user, self) end)), '{}'));
end $$;
