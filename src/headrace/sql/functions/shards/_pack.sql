-- The pack that an event may be in: 128 neighbours on the number line have one. See Packs in
-- 0_essay.
create or replace function headrace._pack(id bigint) returns bigint
language sql immutable parallel safe
as $$ select headrace.place(id) >> 7 $$;
