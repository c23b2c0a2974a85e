"""Long work: a progress bar, and Ctrl-C between two steps, so that no result is unknown."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from headrace.cli.terminal.errors import Interrupted, continued
from headrace.cli.terminal.signals import note
from headrace.cli.terminal.text import count, err, out


class Bar:
    """Progress and rate of long work, on standard error; nothing if that is not a terminal.

    With `by_bytes` the total is in bytes, while events are counted; without a total the bar
    shows only a count and a rate."""

    def __init__(
        self,
        what: str,
        total: float | None,
        *,
        unit: str = "events",
        by_bytes: bool = False,
        shown: bool = True,
    ) -> None:
        self._what, self._total, self._unit, self._by_bytes = what, total, unit, by_bytes
        self._shown = shown and err().is_terminal
        self._done = 0
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._shown:
            self._progress = _progress(self._unit)
            self._task = self._progress.add_task(self._what, total=self._total, count=0)
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def ending(self) -> None:
        """Show that Ctrl-C was received."""
        if self._progress is not None:
            self._progress.update(self._task, description="Stopping after this step (Ctrl-C: now)")

    def advance(self, done: int, size: int = 0) -> None:
        """Add to the count."""
        self.at(self._done + done, size)

    def at(self, done: int, size: int = 0, total: int | None = None) -> None:
        """Set the count, and the total once it is known."""
        more, self._done = done - self._done, done
        if self._progress is not None:
            step = size if self._by_bytes else more
            self._progress.update(self._task, advance=step, count=done, total=total or self._total)


def _progress(unit: str) -> Any:
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(TextColumn):
        def __init__(self) -> None:
            super().__init__("")

        def render(self, task: Any) -> Text:
            done, elapsed = task.fields["count"], task.elapsed or 0
            rate = f"  {done / elapsed:,.0f}/s" if elapsed > 0.5 else ""
            return Text(f"{done:,} {unit}{rate}")

    class Part(TaskProgressColumn):
        def render(self, task: Any) -> Text:
            return super().render(task) if task.total else Text()

    shown = [TextColumn("{task.description}"), BarColumn(), Part(), Rate()]
    left = TimeRemainingColumn(compact=True, elapsed_when_finished=True)
    # Output into a file or a pipe stays there, though the bar is on a terminal.
    redirect = out().is_terminal
    return Progress(*shown, left, console=err(), transient=True, redirect_stdout=redirect)


class Interruption:
    """Ctrl-C (or SIGTERM), to be checked between two steps; a second one interrupts at once."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self.pressed = False
        self.forced = False
        """A second one came, so the result of the step in progress is not known."""

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self.pressed:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        note(number)
        if self.pressed:
            self.forced = True
            raise KeyboardInterrupt
        self.pressed = True
        self._bar.ending()


@contextmanager
def stepping(bar: Bar) -> Iterator[Interruption]:
    """Within this block Ctrl-C waits for a `check`, or for the end of the block."""
    interruption = Interruption(bar)
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, interruption._handle) for number in numbers}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    interruption.check()


def in_steps(
    what: str, total: int | None, run: Callable[[Callable[[int], object]], int], done: str
) -> int:
    """Run a call that reports its progress, with a bar. Ctrl-C ends it after a step, and the error
    message says what was done."""
    so_far = 0
    interruption: Interruption | None = None
    try:
        with Bar(what, total) as bar, stepping(bar) as interruption:
            check = interruption.check

            def progress(count: int) -> None:
                nonlocal so_far
                so_far = count
                bar.at(count)
                check()

            so_far = run(progress)
    except KeyboardInterrupt:
        least = "at least " if interruption and interruption.forced else ""
        events = count(so_far, "event")
        raise Interrupted(f"Interrupted: {least}{events} {done}; the rest is unchanged.") from None
    except Exception as error:
        if so_far == 0:
            raise
        raise continued(error, f"At least {count(so_far, 'event')} {done}.") from error
    return so_far
