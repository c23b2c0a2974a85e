-- Changes a setting of this installation; null restores its default.
--     retention          how long finished months are kept, an interval of at most 100 years (6
--                        months)
--     retention_action   how expired months are removed: drop, or detach (drop)
--     idempotency_retention   how long idempotency keys are kept, likewise (7 days)
--     max_payload        the limit of a payload in bytes, from 65536 to 8388608 (1048576); larger
--                        data belongs in a store of its own, and its address in the payload
--     state_interval     how often the states of changed queues are saved, a number of seconds or
--                        minutes, or off (10 seconds)
-- actor: for the log, see _log_action. The default is the caller's role.
-- Raises QU001 for an unknown name or an invalid value.
create or replace function headrace.configure(name text, value text, actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform headrace._check_access(null);
    if headrace._setting(configure.name) is null then
        raise exception using errcode = 'QU001', message = format('there is no setting %L', configure.name);
    end if;
    if configure.name in ('retention', 'idempotency_retention') and (
           configure.value !~ E'^[1-9]\\d{0,4} (days?|weeks?|months?|years?)$'
               or configure.value::interval > interval '100 years') then
        raise exception using errcode = 'QU001',
            message = format('%s is a number of days, weeks, months or years, as in "6 months", at most 100 years',
                             configure.name);
    end if;
    if configure.name = 'retention_action' and configure.value not in ('drop', 'detach') then
        raise exception using errcode = 'QU001', message = 'retention_action is drop or detach';
    end if;
    if configure.name = 'max_payload' and (configure.value !~ E'^\\d{1,9}$' or configure.value::int not between 65536
                                           and 8388608) then
        raise exception using errcode = 'QU001', message = 'max_payload is a number of bytes from 65536 to 8388608';
    end if;
    if configure.name = 'state_interval' and configure.value !~ E'^([1-9]\\d{0,4} (seconds?|minutes?)|off)$' then
        raise exception using errcode = 'QU001',
            message = 'state_interval is a number of seconds or minutes, as in "10 seconds", or off';
    end if;
    delete from headrace.settings s where s.name = configure.name;
    insert into headrace.settings (name, value) select configure.name, configure.value
    where configure.value is not null;
    perform headrace._log_action(null, configure.actor, 'configure', configure.name,
                                 jsonb_build_object('value', configure.value));
end $$;
