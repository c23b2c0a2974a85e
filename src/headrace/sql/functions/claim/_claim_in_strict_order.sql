-- Takes the next deliveries of a queue of strict order, column by column, as _claim_fair does. If
-- there are none, the claim does the work of tick and looks again, once.
create or replace function headrace._claim_in_strict_order(
    q headrace.queues, types text[], tags text[], all_tags boolean, most int, suspects boolean, worker text,
    out pairs headrace.hint[], out events bigint[], out created timestamptz[], out seqs bigint[], out routes bigint[],
    out priorities smallint[], out attempts int[], out failures smallint[], out crashes smallint[], out keys text[],
    out newest timestamptz, out is_suspect boolean, out chunks int
)
language plpgsql
as $$
#variable_conflict use_column
declare
    watched bigint[];
    ticked boolean := false;
begin
    chunks := 1;
    loop
        if types is not null or tags is not null then
            watched := headrace._filtered_routes_with_work(q, types, tags, all_tags);
        end if;
        select array_agg(o.event), array_agg(o.created_at), array_agg(o.event), array_agg(o.route),
               array_agg(o.priority), array_agg(o.attempts + 1), array_agg(o.failures), array_agg(o.crashes),
               array_agg(o.key), max(coalesce(o.ready_at, o.created_at)), coalesce(bool_or(o.suspect), false)
        into events, created, seqs, routes, priorities, attempts, failures, crashes, keys, newest, is_suspect
        from unnest(headrace._claim_strict(q, watched, most, suspects, worker)) o;
        exit when events is not null or ticked or not headrace._tick_for_claim();
        ticked := true;
    end loop;
    if array_remove(keys, null) = '{}' then
        keys := null;
    end if;
end $$;
