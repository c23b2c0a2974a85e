-- registered_at is when a node was first registered; this is when its current process started.
alter table headrace.nodes add column started_at timestamptz;
update headrace.nodes set started_at = registered_at;
alter table headrace.nodes alter column started_at set not null;

-- The name of the namespace, so that a table with the columns of core.nodes can have the nodes as its children: see core/2_nodes.sql.
alter table headrace.nodes add column space text collate "C";
delete from headrace.nodes o where not exists (select from headrace.namespaces n where n.id = o.namespace and n.name is not null);
update headrace.nodes o set space = n.name from headrace.namespaces n where n.id = o.namespace;
alter table headrace.nodes alter column space set not null;

-- Events that were sent by pgmq's functions and that core.append_event_log has not been told of yet. They are in the log already, so
-- the call that records one a second time finds it here. Written only where both parts are installed, and kept for five minutes.
create table headrace.sent (
    namespace int not null,
    digest    bigint not null,          -- see content_digest
    event     bigint not null,
    at        timestamptz not null,
    primary key (namespace, digest, event)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index sent_at on headrace.sent (at);
