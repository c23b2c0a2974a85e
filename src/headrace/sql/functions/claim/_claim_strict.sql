-- Takes the next deliveries of a queue of strict order, the lowest priority and event first over
-- all routes: at most `most`. A suspect (see 0_essay) is taken alone, when it is the first, by a
-- worker that may have one; otherwise the claim skips it. The claim skips an ordering key that has
-- a delivery in progress.
-- Concurrency: one claim at a time, see _lock_strict_order. Skips rows that other sessions have
-- locked: they are being cancelled, or the like.
create or replace function headrace._claim_strict(
    q headrace.queues, watched bigint[], most int, suspects boolean, worker text
) returns headrace.ready[]
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    urgency smallint := -1;
    next smallint;
    fresh bigint[];     -- routes that have work
    ahead headrace.ready[];
    taken headrace.ready[] := '{}';
    got headrace.ready[];
    locked bigint[] := '{}';    -- events of this priority that are being cancelled, or the like
    suspect int;        -- the place of the first suspect
begin
    if not exists (select from headrace.ready r where r.queue = q.id) or not headrace._lock_strict_order(q.id) then
        return taken;
    end if;
    loop
        next := (select min(p.priority) from (
            (select r.priority from headrace.ready r where r.queue = q.id and not r.suspect and r.priority > urgency
             order by r.priority limit 1)
            union all
            (select r.priority from headrace.ready r where r.queue = q.id and r.suspect and r.priority > urgency
             order by r.priority limit 1)) p);
        exit when next is null;
        fresh := (headrace._routes_between(q.id, false, next, -9223372036854775808, 9223372036854775807,
                                           2147483647)).routes;
        if watched is not null then
            fresh := array(select f from unnest(fresh) f where f = any (watched));
        end if;
        perform headrace._drop_key_tokens(q, next, fresh);
        ahead := headrace._next_in_strict_order(q, next, watched, fresh,
                                                most - cardinality(taken) + cardinality(locked), suspects);
        if locked <> '{}' then
            ahead := array(select a from unnest(ahead) a where a.event <> all (locked) order by a.event
                           limit most - cardinality(taken));
        end if;
        suspect := (select min(n)
                    from unnest(ahead) with ordinality as a(event, created_at, route, seq, queue, attempts, priority,
                        failures, crashes, suspect, pack, key, ready_at, n) where a.suspect);
        if suspect = 1 and taken = '{}' then
            if not headrace._may_have_a_suspect(q, worker) then
                suspects := false;
                continue;
            end if;
            ahead := ahead[:1];
        elsif suspect is not null then
            ahead := ahead[:suspect - 1];
        end if;
        got := headrace._take_strict(q, ahead, most);
        taken := taken || got;
        if cardinality(got) < cardinality(ahead) and cardinality(locked) < 1000 then    -- look behind those
            locked := locked || array(select a.event from unnest(ahead) a
                                      where a.event <> all (array(select g.event from unnest(got) g)));
            continue;
        end if;
        locked := '{}';
        exit when suspect is not null or cardinality(taken) >= most;
        urgency := next;
    end loop;
    return taken;
end $$;
