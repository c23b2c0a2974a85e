"""Passwords in texts are made unreadable: the one place that knows what they look like."""

from __future__ import annotations

import re

HIDDEN = "***"
NAMES = frozenset({"password", "sslpassword", "pgpassword"})

# A password may hold what should have been escaped: it ends at the last @ of the word. In an address
# that is not PostgreSQL's, digits before a path are a port.
_ADDRESSES = (
    re.compile(r"(\bpostgres(?:ql)?(?:\+\w+)?://[^\s:@/]*:)\S*(?=@)", re.IGNORECASE),
    re.compile(r"(\w://[^\s:@/?#]*:)(?!\d+(?:[/?#]|$))\S*(?=@)"),
)
_WORDS = re.compile(
    r"\b((?:ssl|pg)?password)(\s*=\s*)('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s&'\"]+)",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """The text without the passwords of the addresses, DSNs and variables in it."""
    for address in _ADDRESSES:
        text = address.sub(rf"\1{HIDDEN}", text)
    return _WORDS.sub(rf"\1\2{HIDDEN}", text)


def has_password(text: str) -> bool:
    return redacted(text) != text
