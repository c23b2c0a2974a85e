"""Every write of every function of the engine fails in turn: then nothing at all has changed, and whoever calls again
comes to the right end."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

import headrace
from tests.database import Database
from tests.engine.functions_helpers import contents, differences
from tests.faults.disturbed import (
    CALLS,
    SEVERAL,
    Disturbed,
    World,
    ask,
    comes_to_the_right_end,
    replay,
)
from tests.requirements import requirement

# Each row that the disturbed session writes is counted, in a sequence, which no rollback turns back.
STRIKES = """
create sequence headrace_test.writes;
create table headrace_test.strike (n bigint, sqlstate text);
create function headrace_test.strike() returns trigger language plpgsql as $$
begin
    if current_setting('application_name') = 'disturbed'
       and nextval('headrace_test.writes') = (select s.n from headrace_test.strike s) then
        raise exception using errcode = (select s.sqlstate from headrace_test.strike s), message = 'so be it';
    end if;
    return coalesce(new, old);
end $$;
do $$
declare
    place regclass;
begin
    for place in
        select c.oid from pg_class c
        where c.relnamespace = 'headrace'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    loop
        execute format('create trigger strike before insert or update or delete on %s '
                       'for each row execute function headrace_test.strike()', place);
    end loop;
end $$;
"""
LOCKS = "select * from pg_locks where locktype = 'advisory'"


class AtAWrite:
    """The n-th row that the disturbed session writes raises an error."""

    def __init__(self, db: Database, sqlstate: str, n: int, *, is_several: bool) -> None:
        self.db = db
        self.sqlstate = sqlstate
        self.n = n
        self.is_several = is_several

    def arm(self) -> None:
        self.db.sql("select setval('headrace_test.writes', 1, false)")
        self.db.sql("insert into headrace_test.strike values (%s, %s)", [self.n, self.sqlstate])
        self.before = contents(self.db)

    def has_struck(self) -> bool:
        self.db.sql("delete from headrace_test.strike")
        [(struck,)] = self.db.sql(
            "select is_called and last_value >= %s from headrace_test.writes", [self.n]
        )
        return bool(struck)

    def check(self) -> None:
        """Nothing has changed. (Of several statements the first ones may have been done: a poll ticks before it claims.)"""
        if not self.is_several:
            assert differences(self.before, contents(self.db)) == set()


def sweeps() -> Iterator[Any]:
    """Every call that writes with every error. `make test` takes every other call with one error, in turn."""
    for number, call in enumerate(call for call in CALLS if call not in (ask, replay)):
        for turn, sqlstate in enumerate(["40001", "57014"]):  # as in test_every_statement
            marks = [] if number % 4 == 2 * turn else [pytest.mark.rest]
            yield pytest.param(call, sqlstate, id=f"{call.__name__}-{sqlstate}", marks=marks)


@requirement("G2", "G4", "G5", "G7", "G8")
@pytest.mark.parametrize(("call", "sqlstate"), list(sweeps()))
def test_a_call_whose_writes_fail_changes_nothing_and_comes_to_the_right_end_later(
    db: Database, call: Callable[[World], Disturbed], sqlstate: str
) -> None:
    world = World(db)
    db.sql(STRIKES)
    n, struck = 0, True
    with headrace.connect(make_conninfo(db.dsn, application_name="disturbed")) as queue:
        while struck:
            n += 1
            disturbance = AtAWrite(db, sqlstate, n, is_several=call in SEVERAL)
            struck = comes_to_the_right_end(call, world, queue, disturbance)
            assert db.sql(LOCKS) == []
    assert n > 1, "nothing was written"
