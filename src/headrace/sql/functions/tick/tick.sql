-- Does all work that is due: delayed deliveries become ready, expired leases end, schedules fire;
-- queues with a limit are counted, queues that began in the past are filled, drained queues are
-- paused; unhandled events are dead-lettered where the namespace says so; metrics are sampled for
-- `history`, and the states of queues are saved; and, once an hour or when asked, the upkeep.
-- Returns what it did; `more`: there is more to do, call again at once. Any session may call it,
-- anywhere, at any time, also concurrently. Every second is usual. For a role that is bound to
-- namespaces it does the first three of these, in those namespaces: so the locks that it holds
-- while its transaction is open concern no other namespace. So a role that is not bound must tick,
-- too.
-- since: a bound for these scans, so that they do not walk dead index entries while vacuum is held
-- up: pass the time of the last call but a few, and every minute or so nothing, to find the rows
-- that were locked then.
-- Concurrency: never waits, skips locked rows. Raises QU030 outside READ COMMITTED.
create or replace function headrace.tick(
    since timestamptz default '-infinity',
    upkeep boolean default false,
    out due int,
    out expired int,
    out fired int,
    out kept_up boolean,
    out more boolean,
    out at timestamptz
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
declare
    everywhere constant boolean := headrace._has_access(null);
    did text;
    firing boolean;
    filling boolean := false;
    burying boolean := false;
    folding boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'tick needs READ COMMITTED: it moves what others have just committed';
    end if;
    at := headrace._now();
    if everywhere and headrace._read_clock(at) or since > at then
        since := '-infinity';   -- the caller's is from a clock that was ahead
    end if;
    due := headrace._tick_due(5000, since);
    expired := headrace._tick_expired(100, since);
    select s.fired, s.more into fired, firing from headrace._tick_schedules(100, since) s;
    perform headrace._release_limited_keys(at);
    if everywhere then
        perform headrace._tick_limits();
        filling := headrace._tick_queues(at, since);
        burying := headrace._tick_unhandled(at);
        folding := headrace._fold_counts(since);
        perform headrace._sample_history(at);
        perform headrace._save_states(at);
        did := headrace._upkeep(upkeep);
    end if;
    kept_up := did is not distinct from 'done';
    more := did is not distinct from 'more' or due >= 5000 or expired >= 100 or firing or filling or burying or folding;
end $$;
