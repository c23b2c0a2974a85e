-- Imports the file of a queue, of this database or another, into a queue of this database, and into
-- no other. In one call, or in several of one transaction that have the same `import`, a number of
-- the caller's:
--     header    the result of export_queue, in the first call
--     events    an array as export_events returned it; together, in order, all events of the file
--     total     the number of events in the file, in the last call: if another number was imported,
--               the call fails
-- The transaction cannot commit before the last call: a file is imported whole or not at all.
-- The queue is made with the settings of the file if it does not exist. _begin_import explains the
-- treatment of ids, _import_events that of events. The last call returns the results of all calls:
--     is_new, kept_ids        the queue was made; the events have the ids that they had
--     stored                  events that were not here yet
--     ready, delayed, dead    deliveries of this import, by where they are now
--     already                 events of the file that the queue had before, however they ended:
--                             they stay as they are
-- actor: the name in the log (see _log_action); default: the caller's role.
-- Concurrency: imports into a namespace take turns. While one goes on, no month is retired and no
-- queue is filled with the past; into a database that never held an event, publishers wait for its
-- end.
-- Raises QU001, QU002, QU003 (with the event's place in the array as detail), QU010, QU023 while a
-- queue of the namespace is being filled with the past, QU030 outside READ COMMITTED.
create or replace function headrace.import_state(
    namespace text, queue text default 'main', import uuid default gen_random_uuid(), header json default null,
    events json default null, total bigint default null, actor text default null,
    out is_new boolean, out kept_ids boolean, out stored bigint, out ready bigint, out delayed bigint, out dead bigint,
    out already bigint
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    o headrace.open_imports;
    q headrace.queues;
begin
    perform headrace._check_access(import_state.namespace);
    if import_state.header is not null then
        perform headrace._begin_import(
            import_state.import, import_state.namespace, import_state.queue, import_state.header::jsonb,
            import_state.actor);
    end if;
    q := headrace._queue_named(import_state.namespace, import_state.queue);
    select i.* into o from headrace.open_imports i where i.id = import_state.import and i.queue = q.id;
    if not found then
        raise exception using errcode = 'QU001',
            message = 'the first call of an import has the header of the file, and the others are of the same '
                      'transaction, import and queue';
    end if;
    if import_state.events is not null then
        perform headrace._import_events(o, q, import_state.events::jsonb);
    end if;
    if import_state.total is not null then
        select * into is_new, kept_ids, stored, ready, delayed, dead, already
        from headrace._end_import(import_state.import, q, import_state.total);
    end if;
end $$;
