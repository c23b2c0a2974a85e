-- The trigger for writes to core.namespaces: an insert makes the namespace with its queue, or does
-- nothing if it exists; an update changes its metadata; a delete deletes a namespace without
-- unfinished deliveries. Each goes through the engine.
create or replace function core._write_namespace() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'DELETE' then
        perform headrace.delete_namespace(old.namespace);
        return old;
    elsif tg_op = 'UPDATE' then
        if (new.namespace, new.created_at) is distinct from (old.namespace, old.created_at) then
            raise exception using errcode = 'QU001',
                message = 'an update of core.namespaces sets metadata alone: a namespace keeps its name';
        end if;
        perform headrace.change_namespace(old.namespace, jsonb_build_object('metadata', new.metadata));
    else
        if new.created_at is not null then
            raise exception using errcode = 'QU001',
                message = 'created_at of core.namespaces is the database''s: leave it out';
        elsif not headrace.create_namespace(new.namespace, coalesce(new.metadata, '{}')) then
            return null;
        end if;
    end if;
    select n.created_at, n.metadata into new.created_at, new.metadata from headrace.namespaces n
    where n.name = new.namespace;
    return new;
end $$;
