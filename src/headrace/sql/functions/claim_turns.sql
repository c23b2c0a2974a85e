-- Claims the first deliveries of ordering keys whose tokens the caller has taken out of one pair of `ready`: see claim_turn.
--     turns      what was claimed
--     busy       keys that somebody else is at: the caller must put their tokens back
--     useless    whether there was a token that was good for nothing here
-- Concurrency: waits for nobody, but for a millisecond where two claims of a key meet in a way that no row lock shows.
create or replace function headrace.claim_turns(
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
    begin   -- one subtransaction for all of them: those of a transaction are counted
        foreach key in array keys loop
            select * into token from headrace.claim_turn(q, pair, key);
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
    -- One of them has made all of it undone: one by one.
    turns := '{}'; busy := '{}'; useless := false;
    foreach key in array keys loop
        select * into token from headrace.claim_turns(q, pair, array[key]);
        turns := turns || token.turns;
        busy := busy || token.busy;
        useless := useless or token.useless;
    end loop;
end $$;
