-- Changes settings of a namespace: those that are named; null brings a default back.
--     unhandled   what becomes of events that no node handles: keep, or dead_letter (keep)
--     unhandled_after   for how many seconds before it is dead-lettered (300)
--     metadata    whatever you like to keep with it, an object
-- actor: who did it, for the log: see log_action. The caller's role if nobody is named.
-- Concurrency: as change_queue. Raises QU001 for what is no setting or no value for it, QU010.
create or replace function headrace.change_namespace(namespace text, settings jsonb, actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    n headrace.namespaces := headrace.lock_namespace(change_namespace.namespace);
begin
    perform headrace.refuse(headrace.namespace_problem(settings), 0);
    update headrace.namespaces u set
        unhandled = case when settings ? 'unhandled' then coalesce(settings ->> 'unhandled', 'keep') else u.unhandled end,
        unhandled_after = case when settings ? 'unhandled_after'
                               then make_interval(secs => coalesce((settings ->> 'unhandled_after')::float8, 300)) else u.unhandled_after end,
        metadata = case when settings ? 'metadata' then coalesce(nullif(settings -> 'metadata', 'null'), '{}') else u.metadata end
    where u.id = n.id;
    perform headrace.log_action(n.id, change_namespace.actor, 'change_namespace', n.name, settings);
end $$;
