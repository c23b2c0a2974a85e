-- A lease whose end charges nobody: what it held is handed back as it was, never a suspect. Who reads with a visibility timeout
-- says for how long others are not to see it, and not that he will live so long.
alter table headrace.leases add column lenient boolean not null default false;
