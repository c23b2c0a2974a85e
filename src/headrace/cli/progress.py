"""Long work: a bar on a terminal, and Ctrl-C that does not leave a statement half known."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from headrace.cli.failing import Interrupted, continued
from headrace.cli.showing import count, err, out
from headrace.cli.signals import note


class Bar:
    """How far long work is, and how fast, on standard error; nothing where that is no terminal.

    With `by_bytes` the total is of bytes, while things are counted; without a total there is a count and a rate alone."""

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
        """Say that Ctrl-C was heard."""
        if self._progress is not None:
            self._progress.update(
                self._task, description="Ending after this step (Ctrl-C: at once)"
            )

    def advance(self, done: int, size: int = 0) -> None:
        """So many more."""
        self.at(self._done + done, size)

    def at(self, done: int, size: int = 0, total: int | None = None) -> None:
        """So many by now, of so many if that has become known."""
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
    # What goes to a file or a program goes there, though the bar is on a terminal.
    redirect = out().is_terminal
    return Progress(*shown, left, console=err(), transient=True, redirect_stdout=redirect)


class Interruption:
    """Ctrl-C (or SIGTERM) as something to look for between two steps; a second one does not wait for that."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self.pressed = False
        self.forced = False
        """There was a second one, so it is not known whether the step that was under way was done."""

    def check(self) -> None:
        """Here it may end."""
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
    """While this lasts, Ctrl-C waits for a `check`, or for its end."""
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
    """Run a call that tells its progress, with a bar. Ctrl-C ends it after a step, and it is said what was done."""
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
        raise Interrupted(f"Interrupted: {least}{events} {done}; the rest is as it was.") from None
    except Exception as error:
        if so_far == 0:
            raise
        raise continued(error, f"At least {count(so_far, 'event')} {done}.") from error
    return so_far
