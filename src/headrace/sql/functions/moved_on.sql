-- Moves a caller's hint on after a claim of its pair that began with the number `first`: see poll. What the pair was
-- drained to becomes its bound a quarter of a second later, when those who drew lower numbers have most likely
-- committed; whoever took longer is found by the next sweep. A sweep that found something below the bound lowers
-- it again, so that the rest of a late commit follows at full speed.
create or replace function headrace.moved_on(hint headrace.hint, first bigint, t timestamptz) returns headrace.hint
language plpgsql immutable
as $$
begin
    if first < hint.low then
        hint.low := first;
    elsif abs(extract(epoch from t) - hint.next_at) < 0.25 then     -- a clock that was set back has shown that time before
        return hint;
    else
        hint.low := greatest(hint.low, hint.next);
    end if;
    hint.next := first;
    hint.next_at := extract(epoch from t);
    return hint;
end $$;
