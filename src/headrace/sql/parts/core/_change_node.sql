-- The trigger for an update or delete of core.nodes: a new last_heartbeat is a heartbeat; all else
-- is refused.
create or replace function core._change_node() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if tg_op = 'DELETE' then
        raise exception using errcode = 'QU001',
            message = 'a node is not deleted from core.nodes: it says goodbye by headrace.unregister_node, and is '
                      'forgotten a month after its last heartbeat';
    elsif to_jsonb(new) - 'last_heartbeat' <> to_jsonb(old) - 'last_heartbeat' then
        raise exception using errcode = 'QU001',
            message = 'an update of core.nodes sets last_heartbeat alone: a node says who it is by INSERT INTO '
                      'core.nodes, again if it is registered';
    end if;
    perform core._check_is_now('last_heartbeat', new.last_heartbeat, old.last_heartbeat);
    update headrace.nodes o set last_heartbeat = headrace._now(), stopped_at = null
    where o.space = old.namespace and o.node_id = old.node_id
    returning o.last_heartbeat into new.last_heartbeat;
    return case when found then new end;
end $$;
