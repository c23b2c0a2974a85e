-- The nodes. An id is unique within its namespace; two namespaces may each have a node of one id.
create or replace view core.nodes as
select o.node_id::text as node_id, n.name::text as namespace, o.display_name, o.description, o.metadata, o.registered_at, o.last_heartbeat
from headrace.nodes o join headrace.namespaces n on n.id = o.namespace;
