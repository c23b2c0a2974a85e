"""Cursors of the log: the number of an entry, and in which life of the database it was told.

A promoted standby, or a restored backup, may number new entries as the lost server has numbered
others. A reader that comes back with a cursor reads again what came after the switch; a reader that
comes back with a number alone may miss entries. Outside this module a cursor is a text to be kept
and handed back.
"""

from __future__ import annotations

import re

from headrace.engine.arguments import MAX_ID
from headrace.errors import InvalidInput

PATTERN = r"^(?:([0-9a-f]{1,16})-)?(0|[1-9][0-9]{0,17})$"
_FORM = re.compile(PATTERN)
OF_SHARDS = r"^[0-9]{1,4}~(?:[0-9a-f]{1,16}-)?[0-9a-z]{1,19}(?:,[0-9]{1,4}~(?:[0-9a-f]{1,16}-)?[0-9a-z]{1,19}){0,1100}$"
"""Of several shards: a place on each."""
ANY = f"(?:{PATTERN})|(?:{OF_SHARDS})"


def read(cursor: str | int) -> tuple[int, str | None]:
    """The arguments of log_since: the number to read after, and the cursor; None: only a number
    was given."""
    form = _FORM.fullmatch(cursor) if isinstance(cursor, str) else None
    number = int(form[2]) if form else cursor
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_ID:
        raise InvalidInput(
            f"the log goes on after a cursor, or the number of an entry, not {cursor!r}"
        )
    return number, form[0] if form and form[1] else None


def moved(cursor: str, entry: int) -> str:
    """A cursor of the same life at an entry that was told."""
    return f"{cursor.partition('-')[0]}-{entry}"
