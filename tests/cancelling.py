"""Cancels a call at its first, second, … suspension, until it has none left: no await may hold what a cancel loses."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any

from headrace import HeadraceError

PATIENCE = 30.0  # seconds for a call that takes milliseconds
MOST = 200  # suspensions of a call; more are a loop


class Suspending:
    """Awaits a coroutine and cancels its task when it suspends for the n-th time: as it does (`early`), or when what it waits
    for has come and the task has not yet run on."""

    def __init__(self, call: Coroutine[Any, Any, Any], n: int, early: bool) -> None:
        self._call = call
        self._n = n
        self._early = early
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = lambda: self._call.send(None)  # noqa: E731
        while True:
            try:
                waited = step()
            except StopIteration as end:
                return end.value
            self.suspensions += 1
            if self.suspensions == self._n:
                self._cancel_by(waited)
            try:
                yield waited
            except BaseException as error:
                thrown = error
                step = lambda: self._call.throw(thrown)  # noqa: B023, E731
            else:
                step = lambda: self._call.send(None)  # noqa: E731

    def _cancel_by(self, waited: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._early:
            task.cancel()
        elif waited is None:  # it only lets others run
            asyncio.get_running_loop().call_soon(task.cancel)
        else:
            # Asked for before the task asks, so that the cancel comes before the task is woken.
            waited.add_done_callback(lambda _: task.cancel())


async def cancel_everywhere(
    call: Callable[[], Coroutine[Any, Any, Any]], check: Callable[[str], Awaitable[None]]
) -> int:
    """Make the call again and again, cancelled at each of its suspensions once; how many there were."""
    for early in (True, False):
        for n in range(1, MOST):
            told = f"cancelled {'at' if early else 'after'} suspension {n}"
            suspending = Suspending(call(), n, early)
            task = asyncio.create_task(_awaited(suspending))
            done, _ = await asyncio.wait({task}, timeout=PATIENCE)
            assert done, f"it hangs, {told}"
            if not task.cancelled() and suspending.suspensions < n:
                with suppress(HeadraceError):  # made again, a call may be refused
                    task.result()
                break
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, HeadraceError):
                raise AssertionError(told) from error
            await asyncio.wait_for(check(told), PATIENCE)
        else:
            raise AssertionError(f"it was not done after {MOST} suspensions")
    return suspending.suspensions


async def _awaited(suspending: Suspending) -> Any:
    return await suspending
