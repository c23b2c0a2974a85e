-- The namespaces.
create or replace view core.namespaces as
select n.name::text as namespace, n.created_at, n.metadata
from headrace.namespaces n where n.name is not null;
