-- What contradicts the row of headrace.shard, and the command that corrects it; nulls: nothing does.
-- A number above the mark is tried, also where the sequence is behind it.
create or replace function headrace._shard_problem(out problem text, out mend text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select f.problem, case when f.problem is not null then f.mend end
    from (
        select case when i.is_called then i.last_value + p.seqincrement else i.last_value end as next,
               p.seqincrement as step
        from headrace.ids i, pg_sequence p where p.seqrelid = 'headrace.ids'::regclass
    ) n
    left join headrace.shard s on true
    cross join lateral (select (greatest(n.next, s.mark) / s.stride + 1) * s.stride + s.number as new) m
    cross join lateral (
        select case
            when s.stride is null
                then 'the table headrace.shard is empty, so that this database cannot tell which ids are its own'
            when headrace.place(s.mark) <> s.mark or headrace._id_at(headrace.place(m.new)) <> m.new
                 or headrace.place(m.new + s.stride) <> headrace.place(m.new) + 1
                then format('the functions headrace.place and headrace._id_at are not those of shard %s of %s',
                            s.number, s.stride)
            when n.step <> s.stride or n.next % s.stride <> s.number
                then format('the sequence headrace.ids continues with %s in steps of %s, and this is shard %s of %s',
                            n.next, n.step, s.number, s.stride)
        end as problem,
        case when n.step <> s.stride or n.next % s.stride <> s.number then 'headrace repair'
             else 'headrace migrate --sql | psql "$HEADRACE_DSN"' end as mend
    ) f
$$;
