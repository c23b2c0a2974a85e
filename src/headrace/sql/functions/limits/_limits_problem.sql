-- The problem with the limits of a queue; null: none. change_queue explains them.
create or replace function headrace._limits_problem(limits jsonb) returns text
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    entry jsonb;
    one record;
    other record;
    problem text;
begin
    if jsonb_typeof(limits) = 'null' or limits is null then
        return null;
    elsif jsonb_typeof(limits) <> 'array' or jsonb_array_length(limits) > 100 then
        return 'QU001 the limits of a queue are a list of at most 100 limits, or null for none';
    end if;
    for entry in select e from jsonb_array_elements(limits) e loop
        problem := headrace._limit_problem(entry);
        if problem is not null then
            return problem;
        end if;
    end loop;
    for one in
        select o.n, l.scope, l.match, l.prefix from jsonb_array_elements(limits) with ordinality o(limit_, n)
        cross join lateral jsonb_to_record(o.limit_) as l(scope text, match text, prefix text) order by o.n
    loop
        select l.scope, l.match, l.prefix into other from jsonb_array_elements(limits) with ordinality o(limit_, n)
        cross join lateral jsonb_to_record(o.limit_) as l(scope text, match text, prefix text)
        where o.n < one.n and l.scope = one.scope and l.match is not distinct from one.match
          and (l.prefix is not distinct from one.prefix
               or starts_with(l.prefix, one.prefix) or starts_with(one.prefix, l.prefix))
        limit 1;
        continue when not found;
        if other.prefix is not distinct from one.prefix then
            return format('QU001 two limits have the scope %s%s: put both bounds into one of them', one.scope,
                          coalesce(' and the match ' || quote_literal(one.match),
                                   ' and the prefix ' || quote_literal(one.prefix), ''));
        end if;
        return format('QU001 the prefixes %L and %L of two limits overlap: a %s would have both; use match for an '
                      'exception', other.prefix, one.prefix, one.scope);
    end loop;
    return null;
end $$;
