-- The lease tokens of a call, one for each of its `size` items: see finish and _required_tokens.
create or replace function headrace._item_tokens(q headrace.queues, tokens text[], size int) returns text[]
language plpgsql immutable
as $$
begin
    return case when q.require_lease_token then headrace._required_tokens(tokens, size)
                when cardinality(tokens) < size then array_fill(tokens[1], array[size])
                else tokens end;
end $$;
