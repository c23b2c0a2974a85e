-- The nodes. An id is unique within its namespace; two namespaces may each have a node of one id.
create or replace view core.nodes with (security_barrier) as
select o.node_id::text as node_id, n.name::text as namespace, o.display_name, o.description, o.metadata, o.registered_at, o.last_heartbeat
from headrace.nodes o join headrace.namespaces n on n.id = o.namespace
where (not n.bound or (select a.namespaces from core.admission a) is null or n.name = any ((select a.namespaces from core.admission a)::text[]));
