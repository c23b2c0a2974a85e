-- Advances a caller's hint after a claim of its pair that began with the number `first` (null: it
-- took nothing there): see poll.
-- The point to which the pair was drained becomes its bound a quarter of a second later, when the
-- transactions that drew lower numbers have most likely committed; the next sweep finds the rows of
-- transactions that took longer. A sweep that found rows below the bound lowers it again, so that
-- the rest of a late commit follows at full speed. A clock that was set back has shown that time
-- before.
-- PostgreSQL replaces a call by the row itself: a claim of a thousand routes makes a thousand calls.
create or replace function headrace._advance_hint(hint headrace.hint, first bigint, t timestamptz) returns headrace.hint
language sql stable
as $$
    select case
        when first is null or first >= hint.low and abs(extract(epoch from t) - hint.next_at) < 0.25 then hint
        else row(hint.suspect, hint.priority, hint.route,
                 case when first < hint.low then first else greatest(hint.low, hint.next) end,
                 first, extract(epoch from t))::headrace.hint
    end
$$;
