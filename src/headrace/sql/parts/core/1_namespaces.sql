-- The namespaces.
create or replace view core.namespaces with (security_barrier) as
select n.name::text as namespace, n.created_at, n.metadata
from headrace.namespaces n where n.name is not null
    and (not n.bound or (select a.namespaces from core.admission a) is null
         or n.name = any ((select a.namespaces from core.admission a)::text[]));
