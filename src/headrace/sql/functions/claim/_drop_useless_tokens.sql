-- Removes useless tokens of a pair of priority and route, because their key has a delivery in
-- progress, whose end leaves another token, or waits for its rate: those among the next `ahead` rows
-- from `low` on. Such
-- tokens seldom come alone: a key that gets many deliveries at a time leaves a token for each.
-- Concurrency: skips locked rows.
create or replace function headrace._drop_useless_tokens(
    q headrace.queues, pair headrace.hint, low bigint, ahead int
) returns void
language plpgsql
as $$
begin
    delete from headrace.ready r where r.ctid = any (array(
        select p.ctid from headrace.ready p
        where p.queue = q.id and not p.suspect and p.priority = pair.priority and p.route = pair.route
          and p.seq between low and (
              select max(l.seq) from (
                  select l.seq from headrace.ready l
                  where l.queue = q.id and not l.suspect and l.priority = pair.priority and l.route = pair.route
                    and l.seq >= low
                  order by l.seq limit ahead) l)
          and p.key is not null
          and ((select true from headrace.active a where a.queue = q.id and a.key = p.key)
               or q.limits is not null
               and (select true from headrace.limit_keys l where l.queue = q.id and l.key = p.key))
        for update skip locked));
end $$;
