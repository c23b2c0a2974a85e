"""No route waits for ever because another always has work."""

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
