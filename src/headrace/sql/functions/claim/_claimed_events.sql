-- The events of a claim, in its order, or in that of priority and id if it is plain. Events that
-- are stored nowhere any more are left out, and dead-lettered. Runs under the settings of its
-- caller.
create or replace function headrace._claimed_events(lot headrace.lot) returns setof headrace.claimed
language plpgsql
as $$
#variable_conflict use_column
declare
    returned int := 0;
    -- Variables: PostgreSQL knows their values before it opens the months.
    low timestamptz;
    high timestamptz;
begin
    -- A faster form of the last query for the most common claims: one delivery, or a batch of
    -- deliveries that were never claimed before and differ in nothing but the event.
    if cardinality(lot.events) = 1 then
        return query
        select e.id, lot.attempts[1], e.type, e.tags, e.payload, e.details, lot.priorities[1], lot.failures[1],
               coalesce(lot.crashes[1], 0::smallint),
               coalesce(e.max_retries, lot.max_retries), e.created_at, lot.lease, lot.held, lot.until, lot.hints,
               lot.lease_token, lot.picked_at
        from headrace.events e where e.id = lot.events[1] and e.created_at = lot.created[1];
        get diagnostics returned = row_count;
    else
        select min(c), max(c) into low, high from unnest(lot.created) c;
    end if;
    if cardinality(lot.events) > 1 and lot.is_plain and not exists (select from headrace.events_carried) then
        return query
        select e.id, 1, e.type, e.tags, e.payload, e.details, e.priority, 0::smallint, 0::smallint,
               coalesce(e.max_retries, lot.max_retries), e.created_at, lot.lease, lot.held, lot.until,
               case when row_number() over () = 1 then lot.hints end, lot.lease_token, lot.picked_at
        from (
            select * from headrace.events e
            where e.id = any (lot.events)
              and e.created_at between low and high
            order by e.priority, e.id
        ) e;
        get diagnostics returned = row_count;
    end if;
    if returned = 0 then
        low := coalesce(low, lot.created[1]);
        high := coalesce(high, lot.created[1]);
        return query
        select u.event, u.attempt, coalesce(e.type, c.type), coalesce(e.tags, c.tags), coalesce(e.payload, c.payload),
               coalesce(e.details, c.details), u.priority, u.failures, coalesce(lot.crashes[u.n], 0::smallint),
               coalesce(e.max_retries, c.max_retries, lot.max_retries), u.created_at, lot.lease, lot.held, lot.until,
               case when u.place = 1 then lot.hints end, lot.lease_token, lot.picked_at
        from (
            select u.*, row_number() over (
                order by case when lot.is_plain then u.priority end, case when lot.is_plain then u.event end,
                    u.n) as place
            from unnest(lot.events, lot.created, lot.attempts, lot.priorities, lot.failures) with ordinality
                as u(event, created_at, attempt, priority, failures, n)
        ) u
        left join (
            select * from headrace.events e
            where e.id = any (lot.events)
              and e.created_at between low and high
        ) e on e.id = u.event
        left join headrace.events_carried c on c.id = u.event
        where coalesce(e.id, c.id) is not null
        order by u.place;
        get diagnostics returned = row_count;
    end if;
    if returned < cardinality(lot.events) then
        perform headrace._dead_letter_missing_events(lot.lease);
    end if;
end $$;
