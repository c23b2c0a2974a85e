-- Logs an administrative action, in the transaction that performs it. home: the namespace; null for
-- an action that concerns all of them.
-- said: the actor as the caller names it. It is the actor only for a caller with the owner's
-- rights, see _actor. Otherwise details keep it as on_behalf_of, and the user that set the acting
-- role as session_user. self: the actor, where it is Headrace itself. Raises QU001.
create or replace function headrace._log_action(
    home int, said text, action text, target text, details jsonb default null, self text default null
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    self := coalesce(self, headrace._actor(said));
    insert into headrace.admin_log (at, namespace, actor, action, target, details)
    values (headrace._now(), home, self, _log_action.action, _log_action.target,
            nullif(jsonb_strip_nulls(coalesce(_log_action.details, '{}')
                                     || jsonb_build_object('on_behalf_of', nullif(nullif(said, ''), self),
                                                           'session_user',
                                                           case when self = headrace._caller_role()
                                                                then nullif(session_user, self) end)), '{}'));
end $$;
