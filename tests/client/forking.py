"""Programs that fork after they have connected. Each prints what was published: ids, and the payload of each."""

import asyncio
import concurrent.futures
import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import headrace

EACH = 40  # events of a process
CHILDREN = 3

Published = list[tuple[int, str]]

fork: Any = multiprocessing.get_context("fork")
queue: headrace.EventQueue


def publish(name: str, count: int = EACH) -> Published:
    """What was published, as its publisher was told."""
    published = []
    for n in range(count):
        payload = f"{name}-{n}"
        event = queue.publish("a", payload, idempotency_key=payload)
        assert queue.event(event.id).payload == payload
        published.append((event.id, payload))
    return published


def backends() -> set[int]:
    return {session.info.backend_pid for session in [*queue._source._at_hand, *queue._source._pool]}


def process() -> Published:
    answers = fork.Queue()

    def child(name: str) -> None:
        answers.put(publish(name))

    children = [fork.Process(target=child, args=(f"child{n}",)) for n in range(CHILDREN)]
    before = backends()
    for one in children:
        one.start()
    published = publish("parent")
    for _ in children:
        published += answers.get()
    for one in children:
        one.join()
        assert one.exitcode == 0
    assert before <= backends(), "the parent has lost a connection"
    return published + publish("after")


def pool() -> Published:
    with fork.Pool(CHILDREN) as children:
        publishing = children.map_async(publish, [f"child{n}" for n in range(2 * CHILDREN)], 1)
        published = publish("parent")
        return published + list(chain(*publishing.get()))


def executor() -> Published:
    with concurrent.futures.ProcessPoolExecutor(CHILDREN, mp_context=fork) as children:
        publishing = children.map(publish, [f"child{n}" for n in range(2 * CHILDREN)])
        published = publish("parent")
        return published + list(chain(*publishing))


def threads() -> Published:
    """Other threads are in the middle of their calls, and may hold any lock, whenever a child is made."""
    is_over = threading.Event()
    published: Published = []

    def publish_on(number: int) -> None:
        for round in iter_until(is_over):
            published.extend(publish(f"thread{number}-{round}", 5))

    publishing = [threading.Thread(target=publish_on, args=(n,)) for n in range(4)]
    for thread in publishing:
        thread.start()
    with concurrent.futures.ThreadPoolExecutor(2) as forking:
        told = list(forking.map(lambda n: in_child(lambda: publish(f"child{n}", 5)), range(20)))
    is_over.set()
    for thread in publishing:
        thread.join()
    return published + list(chain(*told))


def together() -> Published:
    """The same with publishers that share statements."""
    is_over = threading.Event()
    published: Published = []

    def publish_one(payload: str) -> tuple[int, str]:
        return queue.publish("a", payload).id, payload

    def publish_on(number: int) -> None:
        for round in iter_until(is_over):
            published.append(publish_one(f"thread{number}-{round}"))

    publishing = [threading.Thread(target=publish_on, args=(n,)) for n in range(8)]
    for thread in publishing:
        thread.start()
    with concurrent.futures.ThreadPoolExecutor(2) as forking:
        told = list(forking.map(lambda n: in_child(lambda: [publish_one(f"child{n}")]), range(20)))
    is_over.set()
    for thread in publishing:
        thread.join()
    return published + list(chain(*told))


def grandchild() -> Published:
    def child() -> Published:
        mine = publish("child", 5)
        return mine + in_child(lambda: publish("grandchild", 5)) + publish("child after", 5)

    return publish("parent", 5) + in_child(child) + publish("after", 5)


def leaving() -> Published:
    """Children that use nothing and end as programs do: they close the queue, collect garbage, call what is to be called
    at the exit."""
    for close in (False, True):
        pid = os.fork()
        if pid == 0:
            if close:
                queue.close()
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    return publish("parent")


def awaited() -> Published:
    """A client for asyncio in the loop of the child, while that of the parent goes on."""

    async def publish_soon(own: headrace.AsyncEventQueue, name: str) -> Published:
        async def one(payload: str) -> tuple[int, str]:
            return (await own.publish("a", payload, idempotency_key=payload)).id, payload

        return await asyncio.gather(*(one(f"{name}-{n}") for n in range(EACH)))

    async def run() -> Published:
        async with headrace.connect_async(os.environ["DSN"]) as own:
            published = await publish_soon(own, "before")

            def child(name: str) -> Published:
                return asyncio.run(publish_soon(own, name))

            forking = [asyncio.to_thread(in_child, lambda n=n: child(f"child{n}")) for n in (1, 2)]
            told = await asyncio.gather(publish_soon(own, "parent"), *forking)
            return published + list(chain(*told)) + await publish_soon(own, "after")

    return asyncio.run(run())


def locked() -> Published:
    """The same, made while the parent's loop holds the lock of its pool."""

    async def run() -> Published:
        async with headrace.connect_async(os.environ["DSN"]) as own:

            async def one(payload: str) -> tuple[int, str]:
                return (await own.publish("a", payload)).id, payload

            published = [await one("before")]
            async with own._source._lock:
                published += await asyncio.to_thread(in_child, lambda: [asyncio.run(one("child"))])
            return [*published, await one("after")]

    return asyncio.run(run())


def node() -> Published:
    """A running node, of which a child knows that it does not run there."""

    async def run() -> Published:
        one = headrace.Node("one", dsn=os.environ["DSN"])
        seen: asyncio.Future[Published] = asyncio.get_running_loop().create_future()

        def refused(action: Callable[[], Any]) -> str:
            try:
                action()
            except headrace.NotRunning as error:
                return str(error)
            return "was not refused"

        @one.on_event("handled")
        def handle(event: headrace.Claimed, context: headrace.Context, connection: Any) -> None:
            connection.execute("create table if not exists effects (n int)")

            def child() -> list[str]:
                said = [refused(lambda: context.emit("a")), refused(lambda: one.queue)]
                try:
                    connection.execute("insert into effects values (1)")
                except Exception as error:
                    said.append(str(error))
                return said

            said = in_child(child)
            connection.execute("insert into effects values (2)")
            one._service.loop.call_soon_threadsafe(seen.set_result, said)  # type: ignore[union-attr]

        async with one:
            await one.emit("handled")
            said = await seen
            event = await one.emit("a", json.dumps(said))
            return [(event.id, json.dumps(said))]

    return asyncio.run(run())


def embedded() -> Published:
    """The server stays for a child that uses it, though the parent has left."""
    ready, go_on = os.pipe()

    def child() -> Published:
        published = publish("child", 1)
        os.read(ready, 1)
        published += publish("child after", 1)
        queue.close()
        return published

    with concurrent.futures.ThreadPoolExecutor(1) as forking:
        told = forking.submit(in_child, child)
        while not queue.find_events("child-0"):
            pass
        queue.close()
        os.write(go_on, b".")
        return told.result()


def in_child(action: Callable[[], Any]) -> Any:
    """What an action returns in a process that is forked for it and ends there."""
    ours, childs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(childs, json.dumps(action()).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(childs)
    with open(ours) as told:  # noqa: PTH123
        text = told.read()
    assert os.waitpid(pid, 0)[1] == 0, f"the child has failed: {text}"
    return [tuple(one) if isinstance(one, list) else one for one in json.loads(text)]


def iter_until(event: threading.Event) -> Iterator[int]:
    round = 0
    while not event.is_set():
        yield round
        round += 1


if __name__ == "__main__":
    how, source = sys.argv[1:]
    if how == "embedded":
        queue = headrace.connect(data=source)
    else:
        os.environ["DSN"] = source
        queue = headrace.connect(source, pool_size=3)
        queue.publish("before")
    print(json.dumps(globals()[how]()))
    queue.close()
