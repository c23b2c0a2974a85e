"""What a role that may create in `public` can put in the way of others: it stands in for everything in pg_catalog."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.database import Database

SAFE = "-c search_path=pg_catalog,pg_temp"
"""For what a test itself asks."""

# Sequences do not roll back, so what has run is known even where the error was caught.
_TRAPS = """
create sequence public.caught;
create table public.loot (name text);
create function public.spring(name pg_catalog.text) returns pg_catalog.bool
language plpgsql set search_path = pg_catalog as $$
begin
    perform nextval('public.caught');
    raise exception 'planted: % ran as %', name, current_user;
end $$;
do $do$
declare
    one record;
begin
    for one in
        select format('create function public.%I(%s) returns %s language plpgsql as %L', p.proname,
                      pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
                      format('begin perform public.spring(%L); end', p.oid::regprocedure)) as command
        from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f'
        union all
        -- Exact types win over those of pg_catalog that are any, wherever they are in the path.
        select format('create function public.%I(%s) returns %s language plpgsql as %L', f.name, f.arguments, f.result,
                      format('begin perform public.spring(%L); end', f.name))
        from (values
            ('unnest', 'text[]', 'setof text'), ('unnest', 'bigint[]', 'setof bigint'), ('unnest', 'int[]', 'setof int'),
            ('format', 'text, variadic text[]', 'text'), ('format', 'text, text', 'text'), ('format', 'text, name', 'text'),
            ('format', 'text, regprocedure, text', 'text'), ('format', 'text, regprocedure', 'text'),
            ('format', 'text, regclass', 'text'), ('format', 'text, text, text', 'text'),
            ('jsonb_build_object', 'variadic text[]', 'jsonb'), ('concat', 'variadic text[]', 'text'),
            ('pg_advisory_xact_lock', 'int', 'void'), ('current_setting', 'unknown', 'text'),
            ('to_regnamespace', 'name', 'regnamespace'), ('count', '', 'bigint'), ('max', 'int', 'int'),
            ('array_agg', 'text', 'text[]'), ('string_agg', 'text, text', 'text'), ('bool_or', 'bool', 'bool')
        ) f(name, arguments, result)
        union all
        select format('create function public.%I(%s) returns %s language plpgsql as %L', 'o' || o.oid,
                      concat_ws(', ', nullif(o.oprleft, 0)::regtype, o.oprright::regtype), o.oprresult::regtype,
                      format('begin perform public.spring(%L); end', o.oid::regoperator))
        from pg_operator o where o.oprnamespace = 'pg_catalog'::regnamespace
        union all
        select format('create operator public.%s (%s rightarg = %s, function = public.%I)', o.oprname,
                      'leftarg = ' || nullif(o.oprleft, 0)::regtype || ',', o.oprright::regtype, 'o' || o.oid)
        from pg_operator o where o.oprnamespace = 'pg_catalog'::regnamespace
        union all
        -- An unknown literal is taken to be of the other operand's type.
        select format('create function public.%I(%s, %s) returns %s language plpgsql as %L', 'u' || n, f.type, f.type, f.result,
                      format('begin perform public.spring(%L); end', f.sign || ' of ' || f.type))
        from (values (1, '?', 'jsonb', 'bool'), (2, '||', 'name', 'text'), (3, '->', 'jsonb', 'jsonb'),
                     (4, '->>', 'jsonb', 'text')) f(n, sign, type, result)
        union all
        select format('create operator public.%s (leftarg = %s, rightarg = %s, function = public.%I)', f.sign, f.type, f.type, 'u' || n)
        from (values (1, '?', 'jsonb'), (2, '||', 'name'), (3, '->', 'jsonb'), (4, '->>', 'jsonb')) f(n, sign, type)
        union all
        select format('create domain public.%I as pg_catalog.%I check (public.spring(%L))', t.typname, t.typname, 'type ' || t.typname)
        from pg_type t where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype = 'b' and t.typelem = 0
        union all
        select format('create view public.%I as select * from pg_catalog.%I where public.spring(%L)', c.relname, c.relname, c.relname)
        from pg_class c where c.relnamespace = 'pg_catalog'::regnamespace and c.relkind in ('r', 'v')
    loop
        begin
            execute one.command;
        exception when others then
            null;   -- of some types nobody can make anything
        end;
    end loop;
end $do$;
"""
_CASTS = """
create type public.bait as (n pg_catalog.int4);
create function public.to_bait(pg_catalog.text) returns public.bait language plpgsql as
$$ begin perform public.spring('cast of text'); end $$;
create function public.of_bait(public.bait) returns pg_catalog.text language plpgsql as
$$ begin perform public.spring('cast to text'); end $$;
create cast (pg_catalog.text as public.bait) with function public.to_bait(pg_catalog.text) as implicit;
create cast (public.bait as pg_catalog.text) with function public.of_bait(public.bait) as implicit;
"""


def plant(dsn: str) -> None:
    """As `mallory`, who may create in public and nothing else. From then on everybody's path begins there."""
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("""do $$ begin
            if not exists (select from pg_roles where rolname = 'mallory') then create role mallory login; end if;
            end $$""")
        admin.execute("grant create, usage on schema public to mallory")
        name = admin.info.dbname
    with psycopg.connect(dsn, autocommit=True, user="mallory", options=SAFE) as mallory:
        mallory.execute(_TRAPS)
        mallory.execute(_CASTS)
        mallory.execute("grant all on sequence public.caught to public")
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(f"alter database {name} set search_path = public, pg_catalog")


class PlantedDatabase(Database):
    """A database in which nobody is safe who names anything without its schema. What the test asks itself is."""

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return super().connect(**{"options": SAFE, **options})

    def caught(self) -> bool:
        return self.sql("select is_called from public.caught") == [(True,)]
