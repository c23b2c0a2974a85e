"""How the events of one kind are run."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model import Claimed, Dispatch
from headrace.node.handler.handler import Handler


@dataclass(frozen=True, slots=True)
class Plan:
    """How the events of one kind are run, worked out once."""

    handlers: tuple[Handler, ...]
    in_thread: bool
    """They have only plain handlers, or need a plain connection."""
    is_transactional: bool
    collects: bool
    """Each handler is on its own, and none is run again that has succeeded."""
    wants_progress: bool
    alone: Handler | None
    """The one handler, if its events need neither a transaction nor a batch."""
    quick: Handler | None
    """The one handler, if there is nothing more to its events than to await it."""

    @classmethod
    def of(cls, handlers: tuple[Handler, ...], dispatch: Dispatch) -> Plan:
        plain = [handler for handler in handlers if not handler.is_async]
        wants_connection = any(handler.wants_connection for handler in handlers)
        # One alone ends its event in its transaction, and one of batches has them for itself.
        collects = dispatch == "collect" and (
            len(handlers) > 1 or not (wants_connection or any(one.batch for one in handlers))
        )
        wants_context = any(handler.wants_context for handler in handlers)
        alone = None
        if len(handlers) == 1 and not (collects or wants_connection or handlers[0].batch):
            alone = handlers[0]
        is_quick = alone is not None and not (plain or wants_context or alone.timeout)
        return cls(
            handlers,
            bool(plain)
            and not collects
            and (len(plain) == len(handlers) or any(one.wants_connection for one in plain)),
            wants_connection,
            collects,
            collects or wants_context,
            alone,
            alone if is_quick else None,
        )

    def suits(self, claimed: Claimed) -> bool:
        """Whether the event can be run by this plan: it may have been claimed for other handlers
        than there are now."""
        return bool(self.handlers) and (claimed.held or not self.is_transactional)
