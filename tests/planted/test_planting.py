"""The traps are sharp: whoever names anything without its schema runs what was planted."""

import psycopg
import pytest
from psycopg.errors import RaiseException

from tests.planted.planting import PlantedDatabase


@pytest.mark.parametrize(
    "expression",
    [
        "unnest('{a}'::pg_catalog.text[])",
        "pg_advisory_xact_lock(1)",
        "current_setting('role')",
        "clock_timestamp()",
        "1 = 1",
        "'a'::pg_catalog.text || 'b'",
        "'{}'::pg_catalog.jsonb ? '1'",
        "'{}'::pg_catalog.jsonb -> '1'",
        "'1'::jsonb",
        "'00000000-0000-0000-0000-000000000000'::uuid",
        "array['a']::text[]",
        "1 is distinct from 2",
        "1 in (1, 2)",
        "relname from pg_class",
        "format('%s', 'a'::pg_catalog.text)",
        "max(1)",
    ],
)
def test_what_is_named_without_its_schema_is_somebody_elses(
    empty_db: PlantedDatabase, expression: str
) -> None:
    with psycopg.connect(empty_db.dsn) as unwary, pytest.raises(RaiseException, match="planted: "):
        unwary.execute(f"select {expression}")
    assert empty_db.caught()
    empty_db.sql("select setval('public.caught', 1, false)")
