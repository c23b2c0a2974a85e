"""What goes wrong is a sentence, an exit code, and never a password."""

import psycopg
import pytest

from headrace.cli.program import run
from headrace.cli.terminal.errors import complaint
from headrace.errors import AlreadyEnded, EmbeddedError, InvalidInput, QueueNotFound
from headrace.telemetry.redact import has_password, redacted

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("x"), 2),
        (QueueNotFound("x"), 2),
        (AlreadyEnded("x"), 1),
        (EmbeddedError("x"), 3),
        (psycopg.OperationalError("connection failed: refused\n\tIs the server running?"), 3),
        (psycopg.errors.AdminShutdown("going away"), 3),
        (psycopg.errors.InsufficientPrivilege("not you"), 1),
        (FileNotFoundError(2, "No such file", "f"), 2),
    ],
)
def test_an_exit_code_says_what_kind_of_error_it_was(error: Exception, code: int) -> None:
    found = complaint(error)
    assert found is not None
    assert found.code == code
    assert "\n" not in found.sentence


def test_what_nobody_foresaw_is_no_traceback_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError(f"postgresql://me:{SECRET}@host/db")

    monkeypatch.setattr("headrace.cli.source.database", broken)
    for flag in ([], ["--traceback"]):
        with pytest.raises(SystemExit) as ended:
            run([*flag, "stats"])
        said = capsys.readouterr().err
        assert ended.value.code == 1
        assert said.endswith("shows where)\n")
        assert ("Traceback" in said) == bool(flag)
        assert SECRET not in said.splitlines()[-1]


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://me:{SECRET}@host/db",
        f"postgresql+psycopg://me:a@{SECRET}@host/db",
        f"host=h password={SECRET} dbname=x",
        f"host=h password = 'a b\\' {SECRET}' dbname=x",
        f"postgresql://host/db?user=me&password={SECRET}&sslmode=require",
        f"host=h sslpassword={SECRET} dbname=x",
        f"http://me:{SECRET}@host",
        f"PGPASSWORD={SECRET}",
    ],
)
def test_a_password_is_found_wherever_an_address_has_it(dsn: str) -> None:
    assert has_password(dsn)
    assert SECRET not in redacted(f"cannot reach {dsn}: refused")


@pytest.mark.parametrize(
    "arguments",
    [
        ["events", "--dsn", f"postgresql://me:{SECRET}@127.0.0.1:1/x"],
        ["events", f"postgresql://me:{SECRET}@127.0.0.1:1/x"],
        ["events", "--dsn", f"postgresql://me:{SECRET}/x@127.0.0.1:1/x"],
        ["evnts", "--dsn", f"host=127.0.0.1 port=1 password={SECRET}"],
    ],
)
def test_a_password_is_never_said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code in (2, 3)
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err


def test_a_password_in_an_argument_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    for dsn, warned in (
        (f"host=127.0.0.1 port=1 password={SECRET}", True),
        ("host=127.0.0.1 port=1", False),
    ):
        with pytest.raises(SystemExit) as ended:
            run(["stats", "--dsn", dsn])
        assert ended.value.code == 3
        said = capsys.readouterr().err
        assert ("HEADRACE_DSN" in said) == warned
        assert "cannot be reached" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["redrive"], "No such command 'redrive'. Did you mean 'dead redrive'? (See: headrace"),
        (["evnts"], "No such command 'evnts'. Did you mean 'events'?"),
        (["events", "--status", "X"], "for '--status' / '-s': 'X' is not one of 'pending', "),
    ],
)
def test_a_mistake_is_answered_with_what_was_meant(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
