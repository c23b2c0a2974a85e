-- Writes to the documented tables go through the engine, or are refused: see each function.
create or replace trigger write_by_engine before insert
    on core._registry for each row execute function core._register();
create or replace trigger write_by_engine instead of update
    or delete on core.nodes for each row execute function core._change_node();
create or replace trigger write_by_engine instead of insert or update
    or delete on core.namespaces for each row execute function core._write_namespace();
create or replace trigger add_by_engine instead of insert
    on core.scheduled_tasks for each row execute function core._add_task();
create or replace trigger change_by_engine instead of update
    on core.scheduled_tasks for each row execute function core._change_task();
create or replace trigger remove_by_engine instead of delete
    on core.scheduled_tasks for each row execute function core._remove_task();
create or replace trigger write_by_engine instead of insert or update
    or delete on core.event_log for each row execute function core._refuse_log();
