from tests.cli.running import CommandLine
from tests.database import Database


def test_a_measurement_has_figures_and_leaves_no_namespace(db: Database, cli: CommandLine) -> None:
    found = cli("bench", "--events", "1000", "--connections", "2", "--json").records
    assert [
        one["events"] >= least for one, least in zip(found, (1000, 100, 1100, 200), strict=True)
    ]
    assert all(one["rate"] > 0 and one["p50_ms"] <= one["p95_ms"] for one in found)
    assert [one.name for one in db.queue().namespaces()] == ["default"]
    assert db.queue().stats().published == 0
