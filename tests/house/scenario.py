"""One life of a queue in which every method of a client is called, in an order that never changes."""

import inspect
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import headrace
from headrace import Completed, EventQueue, Exponential, Failed, HeadraceError, NewEvent, Released
from headrace.driver.runner import Runner
from tests.client.clients import Client
from tests.house.recording import Called, Recorder

# Of a client, but for how the other rooms run verbs: see headrace.driver.runner.
PUBLIC = [
    name
    for name, one in inspect.getmembers(EventQueue, inspect.isfunction)
    if name[0] != "_" and name not in vars(Runner)
]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
AGAIN = 0.9  # seconds: after a second, a poll looks everywhere again


class Scenario:
    """Calls a client's methods, and notes under the name of each what it sent."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder
        self.called: list[Called] = []
        self.names: set[str] = set()
        self.was_prompt = True

    def note(self, name: str) -> None:
        trips = self._recorder.take()
        if not name.startswith("tick"):
            trips = [trip for trip in trips if "headrace.tick(" not in trip[0]]
        self.called.append((name, trips))

    def opened(self, **options: Any) -> "Queue":
        queue = self._client.queue(worker="worker", pool_size=1, **options)
        self.note("connect")
        return Queue(self, queue)

    def on(self, source: Any, remark: str, **options: Any) -> "Queue":
        self._recorder.take()  # what it took to open it is not ours
        return Queue(self, self._client.queue_on(source, worker="worker", **options), remark)

    def play(self) -> None:
        """All of it."""
        queue = self.opened()
        publish(queue)
        work(queue)
        with self.promptly():
            poll_again(self.opened(namespace="again"))
        look(queue)
        administer(queue)
        keep(queue)
        fail(queue)
        self.borrow()
        queue.close()

    def promptly(self) -> "Prompt":
        return Prompt(self)

    def borrow(self) -> None:
        """Clients over a pool and over connections of the caller's, and calls inside transactions."""
        client = self._client
        own = client.connection()
        queue = self.opened(namespace="lent")
        self._recorder.take()
        with client.within(own.transaction()):
            self.note("begin of the caller")
            queue.publish("lent", connection=own)
            queue.publish_many([("lent", n) for n in range(3)], connection=own)
        self.note("commit of the caller")
        one, two, three, *_ = queue.poll(types=["lent"], max_events=4, each=True)
        with client.within(own.transaction()):
            self.note("begin of the caller")
            queue.complete(one, connection=own)
            queue.fail(two, "no", connection=own)
            queue.finish([Released(three)], connection=own)
        self.note("commit of the caller")
        places = {
            "over a connection": (client.connection(), {}),
            "over a connection in autocommit": (client.connection(autocommit=True), {}),
            "over a pool": (client.pool(), {}),
            "unprepared, over a connection in autocommit": (
                client.connection(autocommit=True),
                {"prepare": False},
            ),
        }
        for remark, (source, options) in places.items():
            there = self.on(source, remark, namespace="lent", **options)
            there.publish("there", {"n": 1})
            there.publish_many([("there", n) for n in range(3)])
            claimed = there.poll(types=["there"], max_events=2)
            there.complete(claimed)
            if remark == "over a connection":
                client.call(source.commit)
                self.note("commit of the caller")


class Prompt:
    """Notes whether what is inside took so little time that what depends on it did not change."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self._scenario.was_prompt &= time.monotonic() - self._began < AGAIN


class Queue:
    """A client each of whose calls is noted, and what it sent."""

    def __init__(self, scenario: Scenario, queue: Any, remark: str = "") -> None:
        self._scenario = scenario
        self._queue = queue
        self._remark = f", {remark}" if remark else ""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self._scenario.names.add(name)
            said = ""
            try:
                told = getattr(self._queue, name)(*arguments, **options)
                return list(told) if isinstance(told, Iterator) else told
            except HeadraceError as error:
                said = f": {type(error).__name__}"
                return None
            finally:
                self._scenario.note(f"{name}{self._remark}{said}")

        return call


def publish(queue: Any) -> None:
    queue.create_queue("copies", types=["order.*"], max_retries=2, backoff=3, order="oldest")
    queue.publish("order.made", {"n": 1})
    queue.publish("order.made", {"n": 2})
    queue.publish(
        "full",
        {"text": "ä", "list": [1, None, 2.5]},
        tags=["a", "b"],
        priority=7,
        key="customer",
        idempotency_key="once",
        max_retries=4,
        backoff=Exponential(1, longest=60),
        title="A title",
        description="A description",
        version="2",
        source={"name": "shop"},
        correlation_id="c",
        causation_id="1",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        producer="producer",
        headers={"h": "v"},
    )
    queue.publish(NewEvent("order.made", 3, delay=60))
    queue.publish("later", at=datetime(2100, 1, 1, tzinfo=UTC))
    queue.publish("work", enforce=True)
    queue.publish_many([("work", n) for n in range(12)])
    queue.publish_many([{"type": "mixed", "priority": n, "key": str(n)} for n in range(4)])
    queue.publish_many([])
    queue.publish_many(("many", "x" * 1000) for _ in range(2500))
    queue.wait_for_capacity("work", tags=["a"])


def work(queue: Any) -> None:
    queue.poll(types=["no.such"])
    one = queue.poll_one(types=["work"], lease=30)
    queue.save_progress(one, {"step": 1})
    queue.progress([one.id])
    queue.extend(one, 90)
    queue.complete(one, execution_time_ms=5, status_code=200)
    queue.resolve(one)
    queue.complete(queue.poll(types=["work", "w*"], max_events=3))
    many = queue.poll(types=["work", "wo*"], max_events=4, tags=None, suspects=False)
    queue.extend(many)
    queue.finish(
        [Completed(many[0]), Failed(many[1], "no"), Released(many[2]), Completed(many[3], 3)]
    )
    held = queue.poll(types=["work", "wor*"], max_events=2, each=True, worker="another")
    queue.resolve(held[0])
    queue.extend(held)
    queue.fail(held[0], ValueError("no"), retry_in=5, max_retries=1, backoff=2)
    queue.release(held[1], delay=30)
    queue.finalize(queue.poll_one(types=["mixed"], dispatch="collect"), ["one", "two"])
    again = queue.poll_one(types=["mixed", "m*d"])
    queue.finalize(again.id, success=True)
    queue.finalize(again.id)
    queue.fail(queue.poll_one(types=["full"], tags=["a", "b"], all_tags=True), "no", reason="dead")
    for types in ("mi*", "mix*"):
        queue.fail(queue.poll_one(types=[types]), "dead", max_retries=0)


def poll_again(queue: Any) -> None:
    """With one filter: where the last poll found something, and where there is nothing."""
    queue.publish_many([("again", n) for n in range(5)])
    queue.poll(types=["again"])
    queue.poll(types=["again"], max_events=2)
    queue.poll(types=["again"], max_events=10)
    queue.poll(types=["again"])
    queue.poll()
    queue.poll()


def look(queue: Any) -> None:
    queue.event(1)
    queue.event(1, deliveries=True)
    queue.decode(queue.event(1))
    queue.events(types=["order.*"], limit=2, payload=True)
    queue.events(limit=2, status="PENDING", after=3, oldest_first=True, look_at=100)
    queue.log(1)
    page = queue.log_since(limit=3)
    queue.log_since(page.cursor, actions=["COMPLETED"], mark=page.mark)
    queue.queue()
    queue.queue("copies")
    queue.queues()
    queue.namespaces()
    queue.dead_letters(types=["*"], since=LONG_AGO, payload=True)
    queue.dead_letter(3)
    queue.dead_letter_groups()
    queue.workers()
    queue.nodes()
    queue.unhandled_types()
    queue.limits()
    queue.stats()
    queue.history()
    queue.attention()
    queue.attention(everywhere=True)
    queue.story(3)
    queue.why(3)
    queue.why(1, queue="copies")
    queue.find_events("order")
    queue.find_events("3", payload=True)
    queue.state(limit=5)
    queue.admin_log()
    queue.admin_log(everywhere=True, limit=2, before=100)
    queue.replay(types=["order.*"])
    queue.replay(since=LONG_AGO)


def administer(queue: Any) -> None:
    queue.cancel(1, reason="no more")
    queue.reset(3, actor="me")
    queue.rerun(1, reason="after all")
    queue.redrive(types=["mixed"], reason="again")
    queue.redrive([3])
    queue.purge("ready", types=["many"], reason="too many")
    queue.purge("delayed")
    queue.purge("dead_letters", fingerprint="none")
    queue.erase(2, reason="asked for")
    queue.change_queue("copies", max_retries=5, high_watermark=100, lease=20)
    for name in (None, "copies"):
        queue.pause(name)
        queue.resume(name)
    queue.drain("copies")
    queue.delete_queue("copies", with_deliveries=True)
    queue.create_namespace("new", metadata={"a": 1})
    queue.create_namespace("new")
    queue.change_namespace("new", unhandled="dead_letter", unhandled_after=60)
    queue.delete_namespace("new")
    queue.schedule_task("yearly", "0 0 1 1 *", "order.made", {"n": 1}, tags=["a"], priority=2)
    queue.schedule_task("yearly", "0 0 1 1 *", "order.made", {"n": 1}, tags=["a"], priority=2)
    queue.schedules()
    queue.pause_schedule("yearly")
    queue.resume_schedule("yearly")
    queue.run_schedule("yearly")
    queue.plan_schedules()
    queue.remove_schedule("yearly")
    queue.shard_of("k")
    queue.create_token("token", ["publish"], namespaces=["default"])
    queue.tokens()
    queue.revoke_token("token")
    queue.bind_role("pg_monitor", ["default"])
    queue.bound_roles()
    queue.unbind_role("pg_monitor")


def keep(queue: Any) -> None:
    queue.tick()
    queue.tick(upkeep=True)
    queue.save_state()
    queue.low_water()
    made = queue.checkpoint()
    queue.publish("order.made", 9)
    queue.checkpoints()
    queue.recoveries()
    queue.replay(from_checkpoint=made)
    lines = queue.export_state()
    queue.pause()
    moved = queue.export_state(move=True)
    queue.resume()
    queue._scenario.opened(namespace="imported").import_state(lines)
    queue._scenario.opened(namespace="moved").import_state(moved)


def fail(queue: Any) -> None:
    """What is refused, and takes as many round trips."""
    queue.publish("")
    queue.publish("once", 1, idempotency_key="same")
    queue.publish("once", 2, idempotency_key="same")
    queue.event(10**9)
    queue.queue("nosuch")
    queue.complete(headrace.Claim(10**9, 1))
    queue.extend(headrace.Claim(1, 1))
    queue.finalize(10**9)
    queue.cancel(1)
    queue.redrive([10**9])
    queue.delete_namespace("nosuch")
    queue.remove_schedule("nosuch")
    queue.replay(from_checkpoint="nosuch")
