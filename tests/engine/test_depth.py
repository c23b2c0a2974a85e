"""depth: how many deliveries wait, to a bound."""

import pytest

from tests.database import Database
from tests.engine.footprint import footprint
from tests.requirements import requirement

SINGLES = """
insert into headrace.ready (event, created_at, route, seq, queue, priority, suspect)
select g, now(), 1, g, %(queue)s, 5, g %% 10 = 0 from generate_series(1, %(count)s) g
"""
# As publish leaves them: members of one pack are of one bucket of 128 ids.
PACKS = """
insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
select g * 128, now(), 2, g * 128, %(queue)s, 5, array(select g * 128 + m from generate_series(0, 99) m)
from generate_series(1, %(count)s) g
"""
KEYED = """
insert into headrace.keyed (queue, key, event, created_at, route, priority)
select %(queue)s, 'k' || g %% 7, g, now(), 3, 5 from generate_series(1, %(count)s) g
"""
TOKENS = """
insert into headrace.ready (event, created_at, route, seq, queue, priority, key)
select 0, now(), 3, g, %(queue)s, 5, 'k' || g %% 7 from generate_series(1, %(count)s) g
"""


@pytest.fixture
def queue(db: Database) -> int:
    [(queue,)] = db.sql("select id from headrace.queues where space = 'default'")
    return queue


def depth(db: Database, queue: int, most: int) -> int:
    [(depth,)] = db.sql("select headrace._depth(%s, %s)", [queue, most])
    return depth


@requirement("EQ-17", "EB-13")
def test_all_that_waits_is_counted_and_tokens_are_not(db: Database, queue: int) -> None:
    assert depth(db, queue, 10) == 0
    for statement, count in [(SINGLES, 30), (PACKS, 2), (KEYED, 5), (TOKENS, 11)]:
        db.sql(statement, {"queue": queue, "count": count})
    assert depth(db, queue, 1000) == 30 + 200 + 5


def test_what_waits_elsewhere_is_not_counted(db: Database, queue: int) -> None:
    for statement in (SINGLES, KEYED):
        db.sql(statement, {"queue": queue + 1, "count": 3})
    assert depth(db, queue, 1000) == 0


@pytest.mark.parametrize(("most", "told"), [(0, 0), (1, 1), (34, 34), (35, 35), (36, 35)])
def test_it_counts_to_the_bound_and_no_further(
    db: Database, queue: int, most: int, told: int
) -> None:
    db.sql(SINGLES, {"queue": queue, "count": 30})
    db.sql(KEYED, {"queue": queue, "count": 5})
    assert depth(db, queue, most) == told


@pytest.mark.new_database
@pytest.mark.parametrize(("statement", "rows"), [(SINGLES, 1000), (PACKS, 10), (KEYED, 1000)])
@pytest.mark.parametrize("known", [False, True])
def test_it_reads_no_more_than_it_counts(
    db: Database, queue: int, statement: str, rows: int, known: bool
) -> None:
    for table in ("ready", "keyed"):
        db.sql(f"alter table headrace.{table} set (autovacuum_enabled = false)")
    db.sql(statement, {"queue": queue, "count": 20_000})
    if statement == KEYED:
        db.sql(TOKENS, {"queue": queue, "count": 20_000})
    if known:
        db.sql("analyze")
    [(counted,)], touched = footprint(db.connect(), "select headrace._depth(%s, 1000)", [queue])
    assert counted == 1000
    # A loop fetches its rows fifty at a time.
    assert touched["ready"].entries + touched["keyed"].entries == 0, "no sequential scan"
    assert touched.total.entries <= rows + 60, str(touched)
