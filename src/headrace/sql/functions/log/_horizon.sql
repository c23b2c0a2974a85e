-- The numbers that can still appear, by a look now; `keep`: store the result for other sessions.
-- Above READ COMMITTED it is the state that was known when the transaction began, and on a standby
-- the one that the primary has stored. `patient`: most transactions that are writing now end in a
-- moment; so the function looks again for a twentieth of a second.
create or replace function headrace._horizon(keep boolean, patient boolean) returns headrace.horizon
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    h headrace.horizon;
    goal constant bigint := headrace._last_drawn_id();
    its_life constant text := case when not pg_is_in_recovery() then headrace._database_life() end;
begin
    -- Where this life has none yet, the last one's: the transactions that were writing then have
    -- ended, or are prepared for a commit in two phases.
    select k.final, k.pending, k.awaited into h from headrace.horizons k order by k.life = its_life desc, k.pending desc
    limit 1;
    if current_setting('transaction_isolation') <> 'read committed' or its_life is null then
        return row(coalesce(h.final, 0), h.pending, h.awaited);
    end if;
    h := headrace._advance_horizon(h, pg_backend_pid());
    for look in 1..10 loop
        exit when not patient or h.final >= goal;
        perform pg_sleep(0.005);
        h := headrace._advance_horizon(h, pg_backend_pid());
    end loop;
    if keep and headrace._try_lock('horizon') then
        insert into headrace.horizons as k (life, final, pending, awaited)
        values (its_life, h.final, h.pending, h.awaited)
        on conflict (life) do update set final = greatest(k.final, excluded.final), pending = excluded.pending,
            awaited = excluded.awaited
        where (k.final, k.pending, k.awaited) is distinct from (excluded.final, excluded.pending, excluded.awaited);
    end if;
    return h;
end $$;
