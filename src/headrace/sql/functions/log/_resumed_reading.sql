-- The point at which a reader of the log, or of the events, resumes: after a number that it names,
-- or at its mark. `width`: the number of places of the reader's kind that a number of headrace.ids
-- has, 1024 in the log.
--
-- A mark is a cursor, life-number, and the state of this server that the previous call found, which
-- may be missing. The cursor's number was reported, or was drawn before a commit that this database
-- knows of: no copy that has the commit draws it again. A number that was merely drawn is not
-- enough: the numbers of a transaction that was rolled back may never have reached the disk, or the
-- standby, and are drawn again after a crash or a promotion. Reported entries may vanish too, when
-- a standby that lacked them is promoted or a backup is restored. So a cursor of another life goes
-- back to the highest number that was surely drawn in that life before it ended here, see horizons:
-- rewound_to.
-- Raises QU015 for a cursor beyond the end, and for one of a life that this database does not know;
-- 25006 on a standby.
create or replace function headrace._resumed_reading(after bigint, mark text, width int) returns headrace.reading
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    parts constant text[] :=
        regexp_match(
            mark, '^([0-9a-f]+)-([0-9]{1,18})( ([0-9]{1,18}) ([0-9]{1,18})( ([0-9]{1,18}) ([0-9]{1,18}) '
                  '([-0-9/,]*))?)?$');
    r headrace.reading;
    ended bigint;
begin
    if pg_is_in_recovery() then
        raise exception using errcode = '25006',
            message = 'this is a standby, and only the primary knows which transactions are still writing: read there';
    end if;
    r.life := headrace._database_life();
    r.start := headrace._server_started();
    r.after := greatest(after, parts[2]::bigint, 0);
    if parts[1] <> r.life then
        select (h.pending + 1) * width - 1 into ended from headrace.horizons h where h.life = parts[1];
        if not found then
            raise exception using errcode = 'QU015',
                message = format(
                    'the cursor %L is of a copy of this database that it knows nothing of: it was restored from an '
                    'older backup, or the cursor is of another database', parts[1] || '-' || parts[2]),
                hint = 'go on after the number of an entry that is there; 0 is before the first';
        elsif ended < r.after then
            r.after := ended;
            r.rewound_to := ended;
        end if;
    end if;
    r.drawn := headrace._last_drawn_id();
    if r.after > (r.drawn + 1) * width - 1 then
        raise exception using errcode = 'QU015',
            message = format(
                'the cursor %s is beyond the end, which is %s: this database was restored from an older backup, or '
                'the cursor is of another one', r.after, (r.drawn + 1) * width - 1),
            hint = 'go on after the number of an entry that is there; 0 is before the first';
    end if;
    r.position := r.after;
    if parts[1] = r.life and parts[4]::bigint = r.start then
        r.position := greatest(r.after, parts[5]::bigint);
        r.known := row(coalesce(parts[7]::bigint, 0), parts[8]::bigint, string_to_array(parts[9], ','));
    end if;
    select h.pending into r.reached from headrace.horizons h where h.life = r.life;
    if not found and current_setting('transaction_read_only') = 'off' then
        perform headrace._horizon(true, false);   -- so that the next life knows the cursors of this one
    end if;
    return r;
end $$;
