-- Takes members out of the batches that hold them: only those unfinished under the named attempt,
-- and with the named token, if there is one. Locks the leases in the order of their ids, and
-- decides under that lock; a lease whose last member goes is deleted.
create or replace function headrace._take_batched(
    q headrace.queues, events bigint[], attempts int[], leases bigint[], tokens text[] default null
) returns headrace.taken[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_nestloop = off   -- a nested loop over two arrays is quadratic
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    named bigint;
    batch headrace.leases;
    taken headrace.taken[] := '{}';
    part headrace.taken[];
    every bit varying;
    finished bit varying;
begin
    for named in select distinct l.id from unnest(_take_batched.leases) as l(id) where l.id is not null order by 1 loop
        select l.* into batch from headrace.leases l
        where l.id = named and l.queue = q.id and l.events is not null
        for update;
        continue when not found;
        select array_agg(headrace._taken_delivery(
            m.event, coalesce(m.attempt, 1), m.created_at, coalesce(m.failures, 0::smallint), crashes => 0::smallint,
            suspect => false, item => i.item::int, lease => batch.id, "position" => (m.n - 1)::smallint,
            picked_at => batch.picked_at, worker => batch.worker) order by i.item)
        into part
        from (
            -- a member that is named twice is taken once, for its first item
            select i.event, i.attempt, min(i.item) as item
            from unnest(_take_batched.events, _take_batched.attempts, _take_batched.leases,
                        tokens) with ordinality as i(event, attempt, lease, token, item)
            where i.lease = batch.id and (i.token is null or i.token = batch.token::text)
            group by i.event, i.attempt
        ) i
        join unnest(batch.events, batch.attempts, batch.created_at, batch.failures) with ordinality
            as m(event, attempt, created_at, failures, n) on m.event = i.event and coalesce(m.attempt, 1) = i.attempt
        where batch.done is null or get_bit(batch.done, m.n::int - 1) = 0;
        continue when part is null;

        taken := taken || part;
        every := repeat('1', batch.size)::bit varying;
        select bit_or(set_bit(coalesce(batch.done, ~every), p.position, 1)) into finished from unnest(part) p;
        if finished = every then
            delete from headrace.leases l where l.id = batch.id;
        else
            update headrace.leases l set done = finished where l.id = batch.id;
        end if;
    end loop;
    return taken;
end $$;
