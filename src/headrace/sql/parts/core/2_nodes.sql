-- The nodes. An id is unique within its namespace; two namespaces may each have a node of one id.
--
-- The printed registration is INSERT … ON CONFLICT (node_id) DO UPDATE. PostgreSQL plans that only
-- for a table with a unique index on node_id, or for a view of such a table alone; it refuses a
-- view with an INSTEAD OF trigger. So the view reads one table, which is empty: headrace.nodes is
-- its child, so that a query of the table reads the nodes. The trigger takes every insert into the
-- table itself and calls the engine, so that there is never a conflict. See
-- docs/decisions/0023-core-nodes-accepts-on-conflict.md.
do $$
declare
    patience constant text := current_setting('lock_timeout');
begin
    if to_regclass('core._registry') is null then
        create table core._registry (
            namespace      int,
            space          text collate "C",
            node_id        text collate "C" unique,
            display_name   text,
            description    text,
            metadata       jsonb,
            registered_at  timestamptz,
            last_heartbeat timestamptz,
            unique (space, node_id)     -- for ON CONFLICT (namespace, node_id)
        );
        perform set_config('lock_timeout', '10s', true);     -- heartbeats wait behind it
        alter table headrace.nodes inherit core._registry;
        perform set_config('lock_timeout', patience, true);
    end if;
end $$;
create or replace view core.nodes with (security_barrier) as
select r.node_id, r.space as namespace, r.display_name, r.description, r.metadata, r.registered_at, r.last_heartbeat
from core._registry r
where exists (
    select from headrace.namespaces n
    where n.id = r.namespace and (not n.bound or (select a.namespaces from core.admission a) is null
                                  or n.name = any ((select a.namespaces from core.admission a)::text[])));
