-- Advances a caller's hint after a claim of its pair that began with the number `first`: see poll.
-- The point to which the pair was drained becomes its bound a quarter of a second later, when the
-- transactions that drew lower numbers have most likely committed; the next sweep finds the rows of
-- transactions that took longer. A sweep that found rows below the bound lowers it again, so that
-- the rest of a late commit follows at full speed.
create or replace function headrace._advance_hint(hint headrace.hint, first bigint, t timestamptz) returns headrace.hint
language plpgsql immutable
as $$
begin
    if first < hint.low then
        hint.low := first;
    -- a clock that was set back has shown that time before
    elsif abs(extract(epoch from t) - hint.next_at) < 0.25 then
        return hint;
    else
        hint.low := greatest(hint.low, hint.next);
    end if;
    hint.next := first;
    hint.next_at := extract(epoch from t);
    return hint;
end $$;
