-- The log of a namespace after an entry, in order, as a stream that skips nothing: an entry is
-- returned only once no transaction can commit one below it any more. actions: only these; null:
-- all.
-- The last row is no entry (its action is null), and is for the next call: its id is where that
-- call resumes, and next_mark holds the state that this call found. read_to is how far the log was
-- read, which may be further than a cursor may stand: see _resumed_reading. The part of a mark
-- before its first space is a cursor, to be kept: it detects a promotion and a restore. The stream
-- then goes back, and returns entries again rather than skip any: rewound_to says after which
-- number. The rest of a mark may be lost: the next call finds it out anew, and entries come a call
-- later. A number alone resumes as if nothing had happened to the database since.
--
-- A transaction that has published and stays open holds the stream up; one that only reads, or
-- writes elsewhere, does not: see _advance_horizon.
-- Raises QU001, QU010, QU015 for a cursor that this log does not have, and QU030 outside READ
-- COMMITTED.
create or replace function headrace.log_since(
    namespace text, after bigint default 0, "limit" int default 100, actions text[] default null, mark text default null
)
returns table (id bigint, event_id bigint, type text, queue text, action text, worker_id text, attempt int,
               status_code int,
               error_message text, execution_time_ms int, created_at timestamptz, next_mark text, read_to bigint,
               rewound_to bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_custom_plan     -- how much a stretch holds decides which index is best
as $$
#variable_conflict use_variable
declare
    known_actions constant text[] :=
        '{EMITTED,PICKED,STARTED,COMPLETED,COMPLETED_WITH_ERRORS,FAILED,RELEASED,ABANDONED,RESET,CANCELLED,'
        'DEAD_LETTERED,REDRIVEN,PURGED,ERASED}';
    space constant int := (select n.id from headrace.namespaces n where n.name = log_since.namespace);
    r headrace.reading;
    position bigint;    -- every entry up to here was returned
    final bigint;
    low bigint;
    first bigint;
    high bigint;
    width bigint := "limit";
    told int := 0;
begin
    perform headrace._check_access(log_since.namespace);
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'log_since needs READ COMMITTED: it tells what others have just committed';
    elsif after is null or "limit" is null or "limit" not between 1 and 1000 then
        raise exception using errcode = 'QU001',
            message = 'log_since goes on after the id of an entry, with a limit from 1 to 1000';
    elsif not actions <@ known_actions then
        raise exception using errcode = 'QU001', message = format('the log has no action %s: there are %s',
            (select string_agg(distinct coalesce(quote_literal(a), 'null'), ', ') from unnest(actions) a
             where a <> all (known_actions) is not false),
            array_to_string(known_actions, ', '));
    elsif space is null then
        perform headrace._raise_no_such_queue(log_since.namespace, 'main');
    end if;

    r := headrace._resumed_reading(after, mark, 1024);
    r.known := headrace._advance_horizon(r.known);
    final := (r.known).final;
    position := r.position;

    -- The log is read in stretches, because each is read whole: to a little beyond the next entry
    -- of this namespace, and in wider ones where the namespace has few entries.
    loop
        low := position + 1 >> 10;
        -- Beyond `final` new rows may appear a moment later: the ends of claims in this stretch.
        first := least(headrace._next_log_row(space, low), final + 1);
        high := least(headrace._id_at(headrace.place(first) + width), final);
        exit when low > high;
        for id, event_id, type, queue, action, worker_id, attempt, status_code, error_message, execution_time_ms,
            created_at in
            select l.id, l.event_id, (select e.type from headrace.events e where e.id = l.event_id limit 1),
                   (select q.name from headrace.queues q where q.id = l.queue), l.action, l.worker_id, l.attempt,
                   l.status_code, l.error_message, l.execution_time_ms, l.created_at
            from (
                select * from headrace.log_entries n
                where n.namespace = space and n.source between low and high and n.noted >= first and n.id > position
                  and (actions is null or n.action = any (actions))
                order by n.id limit "limit" - told
            ) l
        loop
            return next;
            told := told + 1;
            position := id;
            r.after := id;
        end loop;
        exit when told = "limit";
        position := (high + 1 << 10) - 1;
        width := width * 2;
    end loop;

    event_id := null; type := null; queue := null; action := null; worker_id := null; attempt := null;
    status_code := null;
    error_message := null; execution_time_ms := null; created_at := null;
    r.position := position;
    next_mark := headrace._reading_mark(r, 1024);
    id := substring(next_mark from '-([0-9]+)');
    read_to := position;
    rewound_to := r.rewound_to;
    return next;
end $$;
