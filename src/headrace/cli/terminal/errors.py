"""Errors as a user sees them: a sentence and an exit code, never a traceback, never a password."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from headrace.errors import EmbeddedError, HeadraceError, InvalidInput, NotFound, Unavailable
from headrace.telemetry.redact import redacted

if TYPE_CHECKING:
    import psycopg

REFUSED, MISTAKE, UNREACHABLE, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143

# SQLSTATEs of a server that shuts down, starts up, or accepts no more connections.
_AWAY = ("08", "57P", "53300")


@runtime_checkable
class UsageError(Protocol):
    """A mistake in the command line, as click reports it. Some releases of typer bring a click of
    their own and others import it, so the error is known by click's interface and not by its class."""

    exit_code: int

    def format_message(self) -> str: ...


class CommandError(HeadraceError):
    """A sentence for the user, and an exit code."""

    code = REFUSED


class NotDone(CommandError):
    """The command was understood, and not carried out."""


class WrongUse(CommandError):
    """A mistake of the user."""

    code = MISTAKE


class Interrupted(CommandError):
    """Ctrl-C; the message says what was done by then."""

    code = INTERRUPTED


class DatabaseLost(CommandError):
    """The connection was lost; the message says what was done by then."""

    code = UNREACHABLE


class Complaint(NamedTuple):
    """The sentence for the user, and the exit code."""

    sentence: str
    code: int


def complaint(error: BaseException) -> Complaint | None:
    """The sentence and the exit code for an error; None: the error is unexpected."""
    import psycopg

    match error:
        case CommandError():
            found = Complaint(str(error), error.code)
        case EmbeddedError():
            found = Complaint(str(error), UNREACHABLE)
        case InvalidInput() | NotFound():
            found = Complaint(str(error), MISTAKE)
        case Unavailable():
            found = Complaint(str(error), UNREACHABLE)
        case HeadraceError():
            found = Complaint(str(error), REFUSED)
        case psycopg.Error() if is_away(error):
            found = Complaint(f"PostgreSQL cannot be reached: {reason(error)}", UNREACHABLE)
        case psycopg.Error():
            found = Complaint(f"PostgreSQL refuses: {reason(error)}", REFUSED)
        case OSError():
            named = f"{error.filename}: " if error.filename else ""
            found = Complaint(f"{named}{error.strerror or error}", MISTAKE)
        case _:
            return None
    return Complaint(redacted(found.sentence), found.code)


def continued(error: Exception, words: str, *, about: str = "") -> CommandError:
    """The error with `about` before its sentence and `words` after it."""
    why = complaint(error) or Complaint(f"{type(error).__name__}: {error}", REFUSED)
    kind = {MISTAKE: WrongUse, UNREACHABLE: DatabaseLost}.get(why.code, NotDone)
    return kind(f"{about}{why.sentence.rstrip('.')}. {words}")


def is_away(error: psycopg.Error) -> bool:
    """Whether there is no connection, as opposed to a refusal by PostgreSQL."""
    import psycopg

    if error.sqlstate is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate.startswith(_AWAY)


def reason(error: psycopg.Error) -> str:
    """The first line of the message of PostgreSQL or its library."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    if said.endswith("were:") and len(lines) > 1:  # several hosts or addresses: the last of them
        said = lines[-1].removeprefix("- ")
    return said.removeprefix("connection failed: ").removesuffix(".")
