"""`headrace tokens`, and what `headrace serve` says about them."""

import json
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace import HeadraceError
from headrace.cli.app import app
from headrace.errors import InvalidInput, TokenNotFound
from tests.database import Database
from tests.engine.functions_helpers import contents


def run(db: Database, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--dsn", db.dsn])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def listed(db: Database, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(db, "tokens", "list", "--json", *options))
    return found


def test_a_token_is_printed_once_and_stored_nowhere(db: Database) -> None:
    said = run(db, "tokens", "create", "ci", "--scope", "publish", "-s", "read", "-n", "shop")
    token = said.strip()
    assert token.startswith("hr_")
    assert len(token) > 40
    assert run(db, "tokens", "list").count(token[3:20]) == 0
    stored = contents(db)
    assert stored["api_tokens"]
    assert token not in str(stored)
    [one] = listed(db)
    assert (one["name"], one["scopes"], one["namespaces"]) == ("ci", ["publish", "read"], ["shop"])
    assert "@" in one["created_by"]
    assert db.queue().admin_log(everywhere=True, limit=1)[0].actor == one["created_by"]


def test_it_is_revoked_and_then_listed_on_request_only(db: Database) -> None:
    run(db, "tokens", "create", "ci", "--scope", "admin")
    assert "Revoked: ci" in run(db, "tokens", "revoke", "ci")
    assert "no tokens" in run(db, "tokens", "list")
    assert listed(db) == []
    [one] = listed(db, "--all")
    assert not one["live"]
    assert "revoked" in run(db, "tokens", "list", "--all")
    with pytest.raises(TokenNotFound, match="no token 'ci'"):
        run(db, "tokens", "revoke", "ci")


def test_it_expires(db: Database) -> None:
    run(db, "tokens", "create", "ci", "--scope", "read", "--expires-in", "12h")
    [token] = db.queue().tokens()
    assert token.expires_at is not None
    assert abs(token.expires_at - token.created_at - timedelta(hours=12)) < timedelta(minutes=1)


@pytest.mark.parametrize("length", ["5y", "h", "-1d", "1.5h", "", "0d", "9999999d"])
def test_what_is_no_length_of_time_is_said(db: Database, length: str) -> None:
    with pytest.raises(InvalidInput, match="no length of time"):
        run(db, "tokens", "create", "ci", "--scope", "read", "--expires-in", length)


def test_a_server_that_others_can_reach_needs_one(db: Database) -> None:
    with pytest.raises(HeadraceError, match=r"no token yet.*tokens create.*--insecure-no-auth"):
        run(db, "serve", "--host", "0.0.0.0", "--port", "0", "--for", "0.1")
    insecure = run(
        db, "serve", "--host", "0.0.0.0", "--port", "0", "--for", "0.1", "--insecure-no-auth"
    )
    assert "nobody is asked for a token" in insecure
    assert "everybody on this machine" in run(db, "serve", "--port", "0", "--for", "0.1")
    run(db, "tokens", "create", "ci", "--scope", "read")
    assert "everybody" not in run(db, "serve", "--host", "0.0.0.0", "--port", "0", "--for", "0.1")
