"""`headrace roles`."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.cli.running import CommandLine
from tests.database import Database, Server


@pytest.fixture(autouse=True)
def role(server: Server) -> Iterator[None]:
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute('create role "a tenant" login in role headrace_worker')
        yield
        admin.execute('drop role "a tenant"')


def test_a_role_is_bound_listed_and_free_again(db: Database, cli: CommandLine) -> None:
    assert "No role is bound" in cli("roles").out
    assert "a tenant to shop, billing" in cli("roles", "bind", "a tenant", "-n", "shop", "-n", "billing").out  # fmt: skip
    [one] = cli("roles", "list", "--json").records
    assert (one["role"], one["namespaces"]) == ("a tenant", ["shop", "billing"])
    assert "@" in one["bound_by"]
    assert "shop, billing" in cli("roles").out
    assert "no namespace" in cli("roles", "bind", "a tenant").out
    assert "Unbound: a tenant" in cli("roles", "unbind", "a tenant").out
    assert "Was not bound" in cli("roles", "unbind", "a tenant").out
    log = db.queue().admin_log(everywhere=True, limit=2)
    assert [(entry.action, entry.target) for entry in log] == [
        ("unbind_role", "a tenant"),
        ("bind_role", "a tenant"),
    ]


def test_a_role_that_is_not_there_is_refused(cli: CommandLine) -> None:
    refused = cli.tried("roles", "bind", "nobody", "-n", "shop")
    assert (refused.code, "there is no role 'nobody'" in refused.err) == (2, True)
