"""The handler that runs at the moment, and its node: log records and context-less calls ask here."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol


class Running(Protocol):
    """A runner of handlers. It sets the variable below once and not for every event: setting it for every event
    would cost more than all the rest."""

    @property
    def context(self) -> Any:
        """The context of the handler that runs at the moment; None: none runs."""


current: ContextVar[Running | None] = ContextVar("headrace_current", default=None)

node_name: ContextVar[str | None] = ContextVar("headrace_node", default=None)
"""The node whose work this is, for its logs."""


def running() -> Any:
    """The context of the handler that is calling; None: no handler is."""
    runner = current.get()
    return None if runner is None else runner.context
