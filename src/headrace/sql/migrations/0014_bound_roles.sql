-- Roles that work in some namespaces only: see bind_role. Kept as regrole, which follows a role that is renamed, and is a name in a dump.
create table headrace.bound_roles (
    role       regrole primary key,
    namespaces text[] not null,
    bound_at   timestamptz not null,
    bound_by   text not null
);

-- Whether any role is bound at all: a call that reads this row anyway looks no further if not. The same in every row.
alter table headrace.namespaces add column bound boolean not null default false;
alter table headrace.queues add column bound boolean not null default false;

-- Readers may select from these two tables. Each sees its own bindings, and by them its own queues.
alter table headrace.bound_roles enable row level security;
create policy own on headrace.bound_roles for select
using (pg_has_role(current_user, role, 'USAGE') or pg_has_role(session_user, role, 'MEMBER'));
alter table headrace.event_queue_state enable row level security;
create policy own on headrace.event_queue_state for select
using (not exists (select from headrace.bound_roles)
       or exists (select from headrace.bound_roles b where split_part(id, '/', 1) = any (b.namespaces)));
alter table headrace.queue_checkpoints enable row level security;
create policy own on headrace.queue_checkpoints for select
using (not exists (select from headrace.bound_roles)
       or exists (select from headrace.bound_roles b where split_part(queue_id, '/', 1) = any (b.namespaces)));
