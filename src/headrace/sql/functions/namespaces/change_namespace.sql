-- Changes the given settings of a namespace; null restores a setting's default.
--     unhandled   the policy for events that no node handles: keep, or dead_letter (keep)
--     unhandled_after   seconds before such an event is dead-lettered (300)
--     metadata    any object, stored with the namespace
-- actor: the name in the log (see _log_action); default: the caller's role.
-- Concurrency: as change_queue. Raises QU001 for an unknown setting or an invalid value, QU010.
create or replace function headrace.change_namespace(
    namespace text, settings jsonb, actor text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    n headrace.namespaces := headrace._lock_namespace(change_namespace.namespace);
begin
    perform headrace._raise_problem(headrace._namespace_problem(settings), 0);
    update headrace.namespaces u set
        unhandled = case when settings ? 'unhandled' then coalesce(settings ->> 'unhandled', 'keep')
                         else u.unhandled end,
        unhandled_after = case when settings ? 'unhandled_after'
                               then make_interval(secs => coalesce((settings ->> 'unhandled_after')::float8, 300))
                                   else u.unhandled_after end,
        metadata = case when settings ? 'metadata' then coalesce(nullif(settings -> 'metadata', 'null'), '{}')
                        else u.metadata end
    where u.id = n.id;
    perform headrace._log_action(n.id, change_namespace.actor, 'change_namespace', n.name, settings);
end $$;
