-- Ends an import, so that its transaction can commit, and returns its results: see import_state.
-- Raises QU001.
create or replace function headrace._end_import(
    import uuid, q headrace.queues, events bigint,
    out is_new boolean, out kept_ids boolean, out stored bigint, out ready bigint, out delayed bigint, out dead bigint,
    out already bigint
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t constant timestamptz := headrace._now();
    o headrace.open_imports;
begin
    delete from headrace.open_imports i where i.id = _end_import.import returning i.* into o;
    if o.events is distinct from _end_import.events then
        raise exception using errcode = 'QU001',
            message = format('the state is not whole: it has %s events, and %s were imported',
                             _end_import.events, o.events);
    end if;
    is_new := o.is_new; kept_ids := o.kept_ids; stored := o.stored;
    ready := o.ready; delayed := o.delayed; dead := o.dead; already := o.events - o.ready - o.delayed - o.dead;
    -- Numbers no longer grow with time here: with this mark, look-ups of these events by number
    -- search the months in which they were published.
    if o.oldest_at < t then
        insert into headrace.marks as m (id, at) values (o.highest, o.oldest_at)
        on conflict (id) do update set at = least(m.at, excluded.at);
    end if;
    insert into headrace.imports (id, at, queue, origin, exported_at, kept_ids, events, delivered)
    values (o.id, t, o.queue, o.origin, o.exported_at, o.kept_ids, o.events, o.events - already);
    perform headrace._log_action(q.namespace, o.actor, 'import_state', q.name, jsonb_build_object(
        'origin', o.origin, 'events', o.events, 'stored', stored, 'ready', ready, 'delayed', delayed, 'dead', dead,
        'already', already));
    if ready > 0 then
        perform headrace._wake(q.id);
    end if;
end $$;
