"""What is in the schema headrace, as text to be compared: all of it, or what a reader of a diff wants to see."""

import re
from collections.abc import Iterator

from tests.database import Database

EVERYTHING = {
    "relation": """
        select c.relname, c.relkind, c.reloptions, c.relreplident, c.relpersistence, c.relispartition,
               pg_get_expr(c.relpartbound, c.oid), pg_get_partkeydef(c.oid)
        from pg_class c where c.relnamespace = 'headrace'::regnamespace and c.relkind not in ('i', 'I')
    """,
    "column": """
        select c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
               a.attgenerated, a.attstorage, a.attcompression, a.attcollation::regcollation, a.attacl,
               pg_get_expr(d.adbin, d.adrelid)
        from pg_attribute a
        join pg_class c on c.oid = a.attrelid and c.relkind not in ('i', 'I')
        left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = 'headrace'::regnamespace and a.attnum > 0
    """,
    "index": """
        select pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisreplident from pg_index i
        join pg_class c on c.oid = i.indrelid where c.relnamespace = 'headrace'::regnamespace
    """,
    "constraint": """
        select conrelid::regclass, contype, conname, convalidated, pg_get_constraintdef(oid)
        from pg_constraint where connamespace = 'headrace'::regnamespace
    """,
    "sequence": """
        select seqrelid::regclass, format_type(seqtypid, null), seqstart, seqincrement, seqmin, seqmax, seqcache, seqcycle
        from pg_sequence join pg_class c on c.oid = seqrelid where c.relnamespace = 'headrace'::regnamespace
    """,
    "function": """
        select pg_get_functiondef(p.oid) from pg_proc p where p.pronamespace = 'headrace'::regnamespace
    """,
    "grant": """
        with owned as (
            select 'schema' as kind, nspname::text as name, coalesce(nspacl, acldefault('n', nspowner)) as acl
            from pg_namespace where nspname = 'headrace'
            union all
            select 'relation', relname,
                   coalesce(relacl, acldefault(case relkind when 'S' then 's'::"char" else 'r' end, relowner))
            from pg_class where relnamespace = 'headrace'::regnamespace and relkind not in ('i', 'I', 'c')
            union all
            select 'function', oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner))
            from pg_proc where pronamespace = 'headrace'::regnamespace
        )
        select o.kind, o.name, coalesce(r.rolname, 'PUBLIC'), a.privilege_type, a.is_grantable
        from owned o cross join lateral aclexplode(o.acl) a left join pg_roles r on r.oid = a.grantee
    """,
    "view": """
        select c.relname, pg_get_viewdef(c.oid) from pg_class c
        where c.relnamespace = 'headrace'::regnamespace and c.relkind = 'v'
    """,
    "trigger": """
        select pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = 'headrace'::regnamespace and not t.tgisinternal
    """,
    "type": """
        select t.typname, t.typtype, t.typcategory from pg_type t where t.typnamespace = 'headrace'::regnamespace
    """,
}


def whole_catalogue(db: Database) -> list[str]:
    """Everything about the schema but its data, in an order of its own."""
    return sorted(f"{kind}: {row}" for kind, query in EVERYTHING.items() for row in db.sql(query))


def readable_catalogue(db: Database) -> str:
    """Tables with their columns and indexes, views, types and the functions' signatures."""
    return "\n".join(_relations(db)) + "\n\n" + "\n".join(_functions(db)) + "\n"


def _relations(db: Database) -> Iterator[str]:
    kinds = {"r": "table", "p": "table", "v": "view", "c": "type", "S": "sequence"}
    relations = db.sql("""
        select c.oid, c.relname, c.relkind, pg_get_partkeydef(c.oid), c.reloptions
        from pg_class c where c.relnamespace = 'headrace'::regnamespace and c.relkind = any ('{r,p,v,c,S}')
        order by c.relname collate "C"
    """)
    for oid, name, kind, partitioned, options in relations:
        if re.search(r"_\d{4}_\d\d$", name):
            continue  # a month's
        yield ""
        yield " ".join(
            [kinds[kind], name, *([f"partition by {partitioned}"] if partitioned else [])]
        )
        if options:
            yield "    with " + ", ".join(options)
        if kind != "S":
            yield from _columns(db, oid)
        yield from (f"    {definition}" for definition in _indexes(db, oid))


def _columns(db: Database, relation: int) -> Iterator[str]:
    columns = db.sql(
        """
        select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
               pg_get_expr(d.adbin, d.adrelid)
        from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum
        """,
        [relation],
    )
    for name, type, required, identity, default in columns:
        extras = [" not null"] * required + [" identity"] * bool(identity)
        yield f"    {name} {type}{''.join(extras)}" + (f" default {default}" if default else "")


def _indexes(db: Database, relation: int) -> Iterator[str]:
    indexes = db.sql(
        "select pg_get_indexdef(i.indexrelid), i.indisprimary from pg_index i where i.indrelid = %s order by 1",
        [relation],
    )
    for definition, primary in indexes:
        unique, name, rest = re.match(
            r"CREATE (UNIQUE )?INDEX (\S+) ON (?:ONLY )?\S+ USING (.*)", definition
        ).groups()
        yield ("primary key " if primary else "unique " if unique else "index ") + f"{name} {rest}"


def _functions(db: Database) -> Iterator[str]:
    functions = db.sql("""
        select p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.prosecdef, p.proconfig
        from pg_proc p where p.pronamespace = 'headrace'::regnamespace
        order by p.proname collate "C", p.oid
    """)
    for name, arguments, result, definer, settings in functions:
        yield f"function {name}({arguments}) returns {result}" + " security definer" * definer
        yield from (f"    set {setting}" for setting in settings or ())
