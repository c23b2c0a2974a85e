"""What is said when something goes wrong, and the exit code: a sentence, never a traceback, never a password."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import typer

from headrace.errors import EmbeddedError, HeadraceError, InvalidInput, NotFound, Unavailable
from headrace.redaction import redacted

if TYPE_CHECKING:
    import psycopg

REFUSED, MISTAKE, UNREACHABLE, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143

# click's own, wherever this typer has it
ClickError = cast(type[Exception], typer.BadParameter.__mro__[2])

# Of what PostgreSQL says: it is going away, is starting, or takes no more connections.
_AWAY = ("08", "57P", "53300")


class CommandError(HeadraceError):
    """Something to say, and an exit code."""

    code = REFUSED


class NotDone(CommandError):
    """It was understood, and not done."""


class WrongUse(CommandError):
    """The user's mistake."""

    code = MISTAKE


class Interrupted(CommandError):
    """Ctrl-C, and what was done by then."""

    code = INTERRUPTED


class CutOff(CommandError):
    """The database went away, and what was done by then."""

    code = UNREACHABLE


class Complaint(NamedTuple):
    """What to say, and the exit code."""

    sentence: str
    code: int


def complaint(error: BaseException) -> Complaint | None:
    """None: it is no error that anybody foresaw."""
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
    """The same, with what more there is to say, and what it is about."""
    why = complaint(error) or Complaint(f"{type(error).__name__}: {error}", REFUSED)
    kind = {MISTAKE: WrongUse, UNREACHABLE: CutOff}.get(why.code, NotDone)
    return kind(f"{about}{why.sentence.rstrip('.')}. {words}")


def is_away(error: psycopg.Error) -> bool:
    """It is not that PostgreSQL refuses something: there is no connection."""
    import psycopg

    if error.sqlstate is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate.startswith(_AWAY)


def reason(error: psycopg.Error) -> str:
    """The first line of what PostgreSQL or its library says."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    if said.endswith("were:") and len(lines) > 1:  # several hosts or addresses: the last of them
        said = lines[-1].removeprefix("- ")
    return said.removeprefix("connection failed: ").removesuffix(".")
