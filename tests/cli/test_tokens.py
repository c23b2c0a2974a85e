"""`headrace tokens`, and what `headrace serve` says about them."""

from datetime import timedelta
from typing import Any

import pytest

from tests.cli.running import CommandLine
from tests.database import Database
from tests.engine.functions_helpers import contents


def listed(cli: CommandLine, *options: str) -> list[dict[str, Any]]:
    return cli("tokens", "list", "--json", *options).records


def test_a_token_is_printed_once_and_stored_nowhere(db: Database, cli: CommandLine) -> None:
    said = cli("tokens", "create", "ci", "--scope", "publish", "-s", "read", "-n", "shop")
    token = said.out.strip()
    assert token.startswith("hr_")
    assert len(token) > 40
    assert token[3:20] not in cli("tokens", "list").out
    stored = contents(db)
    assert stored["api_tokens"]
    assert token not in str(stored)
    [one] = listed(cli)
    assert (one["name"], one["scopes"], one["namespaces"]) == ("ci", ["publish", "read"], ["shop"])
    assert "@" in one["created_by"]
    assert db.queue().admin_log(everywhere=True, limit=1)[0].actor == one["created_by"]


def test_it_is_revoked_and_then_listed_on_request_only(db: Database, cli: CommandLine) -> None:
    cli("tokens", "create", "ci", "--scope", "admin")
    assert "Revoked: ci" in cli("tokens", "revoke", "ci").out
    assert "no tokens" in cli("tokens").out
    assert listed(cli) == []
    [one] = listed(cli, "--all")
    assert not one["live"]
    assert "revoked" in cli("tokens", "list", "--all").out
    again = cli.tried("tokens", "revoke", "ci")
    assert again.code == 2
    assert "no token 'ci'" in again.err


def test_it_expires(db: Database, cli: CommandLine) -> None:
    cli("tokens", "create", "ci", "--scope", "read", "--expires-in", "12h")
    [token] = db.queue().tokens()
    assert token.expires_at is not None
    assert abs(token.expires_at - token.created_at - timedelta(hours=12)) < timedelta(minutes=1)


@pytest.mark.parametrize("length", ["5y", "h", "-1d", "1..5h", "", "9999999d"])
def test_what_is_no_length_of_time_is_said(cli: CommandLine, length: str) -> None:
    tried = cli.tried("tokens", "create", "ci", "--scope", "read", "--expires-in", length)
    assert tried.code == 2
    assert "not a valid duration" in tried.err or "longer than 100 years" in tried.err


def test_a_server_needs_one_and_up_only_where_others_can_reach_it(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_TOKEN", raising=False)
    serve, up = (((name, "--port", "0", "--for", "0.1")) for name in ("serve", "up"))
    beyond = ("--host", "0.0.0.0")
    for arguments in (serve, (*serve, *beyond), (*up, *beyond)):
        refused = cli.tried(*arguments)
        assert refused.code == 2
        for word in ("no token yet", "tokens create", "HEADRACE_TOKEN", "--open"):
            assert word in refused.err
    never = "Never put it behind a proxy"
    said = cli(*serve, *beyond, "--open").out
    assert "every client that reaches this address has full access" in said
    assert never in said
    for arguments in ((*serve, "--open"), up, (*up, "--open")):
        said = cli(*arguments).out
        assert "any local user has full access" in said
        assert never in said
    cli("tokens", "create", "ci", "--scope", "read")
    for arguments in (serve, up, (*serve, *beyond)):
        said = cli(*arguments).out
        assert "full access" not in said
        assert never not in said


def test_the_first_one_comes_from_the_environment(
    db: Database, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve = ("serve", "--port", "0", "--for", "0.1")
    monkeypatch.setenv("HEADRACE_TOKEN", "0123456789abcdef0123456789abcdef")
    cli(*serve)
    cli(*serve)  # which finds it
    [one] = listed(cli)
    assert (one["name"], one["scopes"], one["namespaces"]) == ("first", ["admin"], None)
    monkeypatch.setenv("HEADRACE_TOKEN", "another-another-another")
    assert "is not one of the tokens in this database" in cli(*serve).out
    assert [token["name"] for token in listed(cli)] == ["first"]
