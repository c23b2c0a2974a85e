-- Makes this database shard `number` of at most `stride`, and writes place and _id_at for it.
-- Nulls: it stays what it is, and a new database is the only one of its kind, shard 0 of 1. A shard
-- never changes, with one exception: the only one of its kind may become shard 0 of more. Then the
-- numbers that it has drawn stay its own, and it goes on above them.
-- migrate calls it after it has replaced the functions, which brings place and _id_at back to
-- those of the only one.
-- Concurrency: migrations take turns. On becoming a shard, sessions that draw a number wait until
-- this commits. The alter is first, because it waits for the transactions that have drawn one, at
-- most ten seconds (QU023): so all numbers up to the mark are final, and no transaction has numbers
-- on both sides of it.
-- Raises QU040 for a database that is another shard, QU042 as _check_shard.
create or replace function headrace._become_shard(stride int default null, number int default null) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_variable
declare
    own headrace.shard;
    behind bigint;
    was_drawn boolean;
begin
    select * into own from headrace.shard;
    if own.stride is null then
        own := row(true, coalesce(stride, 1), coalesce(number, 0), 0);
        insert into headrace.shard select own.*;
        if own.stride > 1 then
            perform headrace._lay_ids(own, headrace._last_drawn_id());  -- 0, unless the row was lost
        end if;
        if own.number > 0 then      -- no key has its home here yet
            perform headrace._lock_slots();
            perform headrace._slots_changed();
        end if;
    elsif own.stride = 1 and stride > 1 and coalesce(number, 0) = 0 then
        begin
            alter sequence headrace.ids no cycle;   -- changes nothing, and blocks every other draw: see repair_ids
            behind := headrace.ids_behind();
        exception when lock_not_available then
            raise exception using errcode = 'QU023', message =
                'A transaction that has published or claimed stays open, and no shard is made meanwhile: '
                'end it, and migrate again.';
        end;
        if behind is not null then
            perform headrace._raise_ids_behind(behind);
        end if;
        was_drawn := (select i.is_called from headrace.ids i);
        own.stride := stride;
        own.mark := headrace._last_drawn_id();
        update headrace.shard s set stride = own.stride, mark = own.mark;
        perform headrace._lay_ids(own, own.mark);
        if was_drawn then
            perform nextval('headrace.ids');    -- an import must find that numbers were drawn: see _take_ids
        end if;
    elsif stride <> own.stride or number <> own.number then
        raise exception using errcode = 'QU040', message = format(
            'This database is shard %s of %s and cannot become shard %s of %s: a shard never changes; only a '
            'database of stride 1 may become shard 0 of more.',
            own.number, own.stride, coalesce(number, own.number), coalesce(stride, own.stride));
    end if;
    if own.stride > 1 then
        perform headrace._write_places(own);
    end if;
    perform headrace._check_shard();
end $$;
