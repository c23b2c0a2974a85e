-- Does what time has made due: delayed deliveries become ready, leases that ran out end, schedules fire; queues with a limit are counted,
-- those that began in the past are filled, drained ones paused; what nobody handles is dead-lettered where that is wanted; how all is doing is written down for
-- `history`, and the states of queues are saved; and, once an hour or when asked, the upkeep. Returns what it
-- did; `more` says that there is more to do: call again at once.
-- Anybody may call it, anywhere, at any time, twice. Every second is usual. For a role that is bound to namespaces it does the first three of
-- these, there: what it holds while its transaction is open is nobody else's. So somebody must tick who is not bound.
-- since: a bound for these scans, so that they do not walk dead index entries while vacuum is held up: pass
-- the time of the last call but a few, and every minute or so nothing, to find what was locked then.
-- Concurrency: never waits, skips what is locked. Raises QU030 outside READ COMMITTED.
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
    everywhere constant boolean := headrace.admits(null);
    did text;
    firing boolean;
    filling boolean := false;
    burying boolean := false;
    folding boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030', message = 'tick needs READ COMMITTED: it moves what others have just committed';
    end if;
    at := headrace.now();
    if everywhere and headrace.read_clock(at) or since > at then
        since := '-infinity';   -- the caller's is of a future that did not come
    end if;
    due := headrace.tick_due(5000, since);
    expired := headrace.tick_expired(100, since);
    select s.fired, s.more into fired, firing from headrace.tick_schedules(100, since) s;
    if everywhere then
        filling := headrace.tick_queues(at, since);
        burying := headrace.tick_unhandled(at);
        folding := headrace.fold_counts(since);
        perform headrace.sample_history(at);
        perform headrace.save_states(at);
        did := headrace.upkeep(upkeep);
    end if;
    kept_up := did is not distinct from 'done';
    more := did is not distinct from 'more' or due >= 5000 or expired >= 100 or firing or filling or burying or folding;
end $$;
