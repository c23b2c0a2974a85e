"""Threads for plain handlers."""

import asyncio
import threading

import pytest

from headrace.node.run.threads import Threads

pytestmark = pytest.mark.anyio


async def test_there_are_as_many_as_run_at_once() -> None:
    threads = Threads("test")
    together = threading.Barrier(3, timeout=60)
    await asyncio.gather(*(threads.run(together.wait) for _ in range(3)))
    for _ in range(10):
        await threads.run(lambda: None)
    names = {one.name for one in threading.enumerate() if one.name.startswith("test-")}
    assert 3 <= len(names) <= 4
    threads.close()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), GeneratorExit()])
async def test_what_is_raised_in_a_thread_is_raised_where_it_is_awaited(
    error: BaseException,
) -> None:
    def work() -> None:
        raise error

    threads = Threads("test")
    with pytest.raises(type(error)) as caught:
        await threads.run(work)
    assert caught.value is error
    threads.close()


async def test_the_end_of_an_iteration_is_an_error_like_others() -> None:
    """A future takes any exception but this one, and would never be done."""
    threads = Threads("test")
    with pytest.raises(RuntimeError) as caught:
        await asyncio.wait_for(threads.run(lambda: next(iter([]))), 60)
    assert isinstance(caught.value.__cause__, StopIteration)
    threads.close()


async def test_who_does_not_wait_does_not_keep_the_next() -> None:
    threads = Threads("test")
    go_on = threading.Event()
    waiting = asyncio.create_task(threads.run(go_on.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    assert await threads.run(lambda: 1) == 1
    go_on.set()
    assert await threads.run(lambda: 2) == 2
    threads.close()
