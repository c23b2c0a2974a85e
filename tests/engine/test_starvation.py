"""Nothing waits for ever because something else always comes first."""

import pytest

from tests.database import Database
from tests.engine.backlog import fill
from tests.requirements import requirement


@requirement("G4")
@pytest.mark.parametrize("types", [None, ["a.*"]], ids=["unfiltered", "filtered"])
def test_polls_of_one_reach_every_route_while_each_has_work(
    db: Database, types: list[str] | None
) -> None:
    fill(db, 3000, kind="a", routes=3)
    # Routes are digests, so that one may be hit seldom; the rarest of three in 500 tries never 0.
    seen = {
        type
        for _ in range(500)
        for (type,) in db.sql("select type from headrace.poll('default', types => %s)", [types])
    }
    assert seen == {"a.0", "a.1", "a.2"}


@requirement("G4")
def test_one_poll_finds_what_a_dead_worker_held_behind_hundreds_of_ended_claims(
    db: Database,
) -> None:
    """The lease of a claim that was held outlives its end; nobody may queue behind those."""
    fill(db, 301)
    for _ in range(300):
        [claim] = db.sql("select id, attempt from headrace.poll('default', each => true)")
        db.sql("select headrace.complete('default', %s, %s)", claim)
    [(event,)] = db.sql("select id from headrace.poll('default', worker => 'dies')")
    db.advance(seconds=61)
    assert db.sql("select id from headrace.poll('default', worker => 'lives')") == [(event,)]
