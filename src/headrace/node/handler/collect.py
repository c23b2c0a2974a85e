"""The progress of several handlers of one event under dispatch="collect": each runs on its own, and
none twice."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from headrace.engine.arguments import seconds
from headrace.model import Claimed, Completed, Failed, Released, Result
from headrace.model.failure_text import shortened
from headrace.node.handler.handler import Handler

Save: TypeAlias = Callable[[Claimed, Any, Any], Any]

GIVEN_UP = 500  # characters of its error that are kept: all of a progress is not more than 64 KiB


class Collected:
    """Grows from handler to handler, and from attempt to attempt: `progress` is stored between
    them."""

    def __init__(self, claimed: Claimed, progress: Any) -> None:
        known = progress if isinstance(progress, dict) else {}
        self._claimed = claimed
        self._done: list[str] = list(known.get("done") or ())
        self._given_up: dict[str, str] = dict(known.get("given_up") or {})
        self._saved: dict[str, Any] = dict(known.get("saved") or {})
        self._failures: list[Failed] = []
        self._snoozed: list[Released] = []
        self._joined: dict[str, Any] | None = None  # what is saved if a transaction commits
        self._tried: set[str] = set()  # in this attempt

    def is_over(self, handler: Handler) -> bool:
        name = handler.name
        return name in self._tried or name in self._done or name in self._given_up

    def saved_by(self, handler: Handler) -> Any:
        """The progress that this handler has saved for this attempt."""
        return self._saved.get(handler.name)

    def saving(self, handler: Handler, save: Save) -> Save:
        """As `save`, for one handler of several: it keeps what the other handlers have saved, and
        the list of those that are done."""

        def saved(claimed: Claimed, value: Any, connection: Any) -> Any:
            kept = {**self._saved, handler.name: value}
            result = save(claimed, {**self.progress, "saved": kept}, connection)
            if inspect.isawaitable(result):
                return then(result, kept, connection)
            return note(kept, connection)

        async def then(saving: Awaitable[None], kept: dict[str, Any], connection: Any) -> None:
            await saving
            note(kept, connection)

        def note(kept: dict[str, Any], connection: Any) -> None:
            if connection is None:
                self._saved = kept
            else:  # it is kept if that commits: then the handler is done, or snoozes
                self._joined = kept

        return saved

    def note(self, handler: Handler, result: Result) -> None:
        self._tried.add(handler.name)
        if type(result) is Completed or getattr(result, "reason", None) is not None:
            self._saved.pop(handler.name, None)
        if type(result) is Released and self._joined is not None:
            self._saved = self._joined
        self._joined = None
        match result:
            case Released():
                self._snoozed.append(result)
            case Completed():
                self._done.append(handler.name)
            case Failed(reason=str() as reason):
                text = f"{reason}\n{result.error}".strip()
                self._given_up[handler.name] = shortened(text, GIVEN_UP)
            case Failed():
                self._failures.append(result)

    @property
    def progress(self) -> dict[str, Any]:
        return {"done": self._done, "given_up": self._given_up, "saved": self._saved}

    def with_snooze(self, handler: Handler) -> dict[str, Any]:
        """The progress if this one's transaction commits, and it snoozes. It says so, for a node
        that does not hear the answer to COMMIT."""
        saved = self._saved if self._joined is None else self._joined
        return {**self.progress, "saved": saved, "snoozed": self.snooze_of(handler)}

    def snooze_of(self, handler: Handler) -> list[Any]:
        return [handler.name, self._claimed.attempt]

    def with_done(self, handler: Handler) -> dict[str, Any]:
        """The progress if this one succeeds."""
        others = {name: saved for name, saved in self._saved.items() if name != handler.name}
        return {**self.progress, "done": [*self._done, handler.name], "saved": others}

    def result(self, ms: int) -> Result:
        """Well if all did, again if some failed and may be retried, later if some only snooze,
        else with their errors."""
        texts = [*self._given_up.values(), *(str(one.error) for one in self._failures)]
        if self._snoozed and not self._failures:
            delay = min(seconds(one.delay or 0, "delay") for one in self._snoozed)
            return Released(self._claimed, ms, progress=self.progress, delay=delay)
        if not texts:
            return Completed(self._claimed, ms)
        error = "\n\n".join(texts)
        status = "COMPLETED_WITH_ERRORS"
        if not self._failures:
            return Failed(self._claimed, error, ms, reason="Handler error", status=status)  # type: ignore[arg-type]
        first = self._failures[0]
        return Failed(
            self._claimed,
            error,
            ms,
            retry_in=first.retry_in,
            max_retries=first.max_retries,
            backoff=first.backoff,
            last_reason=first.last_reason,
            status=status,  # type: ignore[arg-type]
            progress=self.progress,
        )
