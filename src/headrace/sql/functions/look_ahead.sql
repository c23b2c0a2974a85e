-- Which numbers can still appear, by a look now; `keep`: so that others know, too. Above READ COMMITTED it is what was known when the
-- transaction began, and on a standby what the primary has kept. `patient`: who is writing at this moment mostly is done in the next; so it looks again for a twentieth of a second.
create or replace function headrace.look_ahead(keep boolean, patient boolean) returns headrace.horizon
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    h headrace.horizon;
    goal constant bigint := headrace.drawn();
    its_life constant text := case when not pg_is_in_recovery() then headrace.life() end;
begin
    -- Where this life has none yet, the last one's: who was writing then is over, or prepared for a commit in two phases.
    select k.final, k.pending, k.awaited into h from headrace.horizons k order by k.life = its_life desc, k.pending desc limit 1;
    if current_setting('transaction_isolation') <> 'read committed' or its_life is null then
        return row(coalesce(h.final, 0), h.pending, h.awaited);
    end if;
    h := headrace.advance(h, pg_backend_pid());
    for look in 1..10 loop
        exit when not patient or h.final >= goal;
        perform pg_sleep(0.005);
        h := headrace.advance(h, pg_backend_pid());
    end loop;
    if keep and headrace.try_lock('horizon') then
        insert into headrace.horizons as k (life, final, pending, awaited) values (its_life, h.final, h.pending, h.awaited)
        on conflict (life) do update set final = greatest(k.final, excluded.final), pending = excluded.pending, awaited = excluded.awaited
        where (k.final, k.pending, k.awaited) is distinct from (excluded.final, excluded.pending, excluded.awaited);
    end if;
    return h;
end $$;
