-- Claims a suspect, if the next delivery is one and this worker may have one; haul null: none.
--     place     the place of its pair in `pairs`. The pairs of suspects come after the first `calm`
--     useless   there was a token that was good for nothing
create or replace function headrace._claim_suspect(
    q headrace.queues, pairs headrace.hint[], calm int, sweep boolean, worker text,
    out place int, out haul headrace.haul, out crashes smallint, out useless boolean
)
language plpgsql
as $$
#variable_conflict use_column
declare
    suspect headrace.ready;
    claimed record;
    turn headrace.keyed;
begin
    useless := false;
    -- First, because a worker that has a suspect polls on, for others.
    if not headrace._may_have_a_suspect(q, worker) then
        return;
    end if;
    -- The pair with the oldest suspect first. Only that suspect is locked, so that another worker
    -- gets the next.
    for place in
        select p.n from unnest(pairs) with ordinality as p(suspect, priority, route, low, next, next_at, n)
        where p.suspect
        order by p.priority, (
            select r.seq from headrace.ready r
            where r.queue = q.id and r.suspect and r.priority = p.priority and r.route = p.route
              and r.seq >= case when sweep then 0 else p.low end
            order by r.seq limit 1)
    loop
        select r.* into suspect from headrace.ready r
        where r.queue = q.id and r.suspect and r.priority = pairs[place].priority and r.route = pairs[place].route
          and r.seq >= case when sweep then 0 else pairs[place].low end
        order by r.seq limit 1
        for update skip locked;
        exit when found;
    end loop;
    if suspect.event is null or not headrace._suspect_is_next(suspect, pairs[:calm], sweep) then
        return;
    end if;
    delete from headrace.ready r
    where r.queue = q.id and r.suspect and r.priority = suspect.priority and r.route = suspect.route
      and r.seq = suspect.seq;
    if suspect.key is not null then
        select * into claimed from headrace._claim_keys(q, pairs[place], array[suspect.key]);
        if claimed.busy <> '{}' then
            perform headrace._add_key_token(q.id, true, suspect.priority, suspect.route, suspect.key);
        end if;
        useless := claimed.useless;
        turn := claimed.turns[1];
        if turn.event is null then
            return;
        end if;
        suspect.event := turn.event; suspect.created_at := turn.created_at; suspect.attempts := turn.attempts;
        suspect.failures := turn.failures; suspect.crashes := turn.crashes;
        haul.keys := array[turn.key];
    end if;
    haul.first := suspect.seq;
    haul.events := array[suspect.event]; haul.created := array[suspect.created_at];
    haul.attempts := array[suspect.attempts + 1]; haul.failures := array[suspect.failures];
    haul.newest := coalesce(suspect.ready_at, suspect.created_at);
    crashes := suspect.crashes;
end $$;
