do $$
declare
    patience constant text := current_setting('lock_timeout');
begin
    perform set_config('lock_timeout', '10s', true);     -- heartbeats wait behind it
    alter table headrace.nodes no inherit core._registry;
    perform set_config('lock_timeout', patience, true);
    drop trigger write_by_engine on core._registry;
end $$;
