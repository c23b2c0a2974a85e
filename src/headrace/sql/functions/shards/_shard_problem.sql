-- What contradicts the row of headrace.shard, and what to do; null: nothing does.
create or replace function headrace._shard_problem() returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select case
        when s.stride is null
            then 'the table headrace.shard is empty: restore it, or this database cannot tell its numbers from others'''
        when n.step <> s.stride or n.next % s.stride <> s.number
            then format('the sequence headrace.ids continues with %s in steps of %s, and this is shard %s of %s: '
                        '`headrace repair`, or select headrace.repair_ids(), corrects it',
                        n.next, n.step, s.number, s.stride)
        when headrace._place(s.mark) <> s.mark or headrace._id_at(headrace._place(m.new)) <> m.new
             or headrace._place(m.new + s.stride) <> headrace._place(m.new) + 1
            then format('the functions headrace._place and headrace._id_at are not those of shard %s of %s: run '
                        '`headrace migrate --sql | psql`', s.number, s.stride)
    end
    from (
        select case when i.is_called then i.last_value + p.seqincrement else i.last_value end as next,
               p.seqincrement as step
        from headrace.ids i, pg_sequence p where p.seqrelid = 'headrace.ids'::regclass
    ) n
    left join headrace.shard s on true
    -- a number above the mark, also where the sequence is behind it
    cross join lateral (select (greatest(n.next, s.mark) / s.stride + 1) * s.stride + s.number as new) m
$$;
