-- Claims the first deliveries of ordering keys whose tokens the caller has taken out of one pair of
-- `ready`: see _claim_key.
--     turns      the claimed deliveries
--     busy       keys that other sessions work on: the caller must put their tokens back
--     useless    whether there was a token that was good for nothing here
-- Concurrency: never waits, but for a millisecond where two claims of a key meet in a way that no
-- row lock shows.
create or replace function headrace._claim_keys(
    q headrace.queues, pair headrace.hint, keys text[], out turns headrace.keyed[], out busy text[], out useless boolean
)
language plpgsql
set lock_timeout = '1ms'
as $$
declare
    key text;
    token record;
begin
    turns := '{}'; busy := '{}'; useless := false;
    begin   -- one subtransaction for all keys: PostgreSQL counts those of a transaction
        foreach key in array keys loop
            select * into token from headrace._claim_key(q, pair, key);
            case token.verdict
                when 'claimed' then turns := turns || token.turn;
                when 'kept' then busy := busy || key;
                else useless := true;
            end case;
        end loop;
        return;
    exception when lock_not_available then
        if cardinality(keys) = 1 then
            busy := keys;
            return;
        end if;
    end;
    -- One key has rolled back all of them: claim them one by one.
    turns := '{}'; busy := '{}'; useless := false;
    foreach key in array keys loop
        select * into token from headrace._claim_keys(q, pair, array[key]);
        turns := turns || token.turns;
        busy := busy || token.busy;
        useless := useless or token.useless;
    end loop;
end $$;
