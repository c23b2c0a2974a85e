from collections.abc import Iterator

import pytest

from headrace.testing.database import Database, database
from tests.database import Server


@pytest.fixture(scope="session")
def headrace_database(server: Server) -> Iterator[Database]:
    """On the server of all other tests: another one would only take time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_TEST_DSN", server.dsn)
        with database() as made:
            yield made
