alter table headrace.nodes no inherit core._registry;
drop trigger write_by_engine on core._registry;
