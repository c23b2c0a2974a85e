"""Calls that are about to be disturbed, and what must be true after them, whatever has happened."""

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeAlias
from uuid import uuid4

import psycopg
import pytest

from headrace import Completed, EventQueue, Failed, Released
from tests.database import Database
from tests.places import check_places

LEASE = 60


class World:
    """The undisturbed side of a test: what prepares a call, and looks at what came of it."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.queue: EventQueue = db.queue(worker="undisturbed")

    def claims(self, size: int, **options: Any) -> list[Any]:
        self.queue.publish_many([("a", n) for n in range(size)])
        claims = self.queue.poll(max_events=size, lease=LEASE, **options)
        assert len(claims) == size
        return claims

    def publish_in_order(self, size: int) -> list[int]:
        """Events of one ordering key, published one after the other."""
        publish = "select ids[1] from headrace.publish('default', '{\"key\": \"k\"}')"
        return [id for _ in range(size) for (id,) in self.db.sql(publish)]

    def statuses(self, of: list[Any]) -> list[str]:
        return [self.queue.event(getattr(one, "id", one)).status for one in of]

    def ends(self, claim: Any) -> list[str]:
        """The log of an event after its claim."""
        return [entry.action for entry in self.queue.log(claim.id)][2:]

    def drain(self) -> int:
        """End all there is, as workers would; how many events that were."""
        ended = 0
        while self.db.sql("select 1 from headrace.deliveries limit 1"):
            self.db.advance(seconds=301)
            self.queue.tick()
            while claims := self.queue.poll(max_events=100):
                self.queue.complete(claims)
                ended += len(claims)
        return ended


# A call under test is a generator: it prepares, yields the call that will be disturbed and repeated, is sent what
# that returned in the end, and says what must be true then.
Disturbed: TypeAlias = Generator[Callable[[Any], Any], Any, None]


def publish(world: World) -> Disturbed:
    yield lambda queue: queue.publish("a", {"n": 1})
    # Without a key of idempotency, whoever is not sure and publishes again may have published twice.
    assert world.drain() in (1, 2)


def publish_many(world: World) -> Disturbed:
    ids = yield lambda queue: queue.publish_many([("a", n) for n in range(3)])
    assert world.statuses(ids) == ["PENDING"] * 3
    assert world.drain() in (3, 6)


def publish_very_many(world: World) -> Disturbed:
    """So many that they are several statements in one transaction."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headrace.engine.encoding.BATCH_EVENTS", 2)
        ids = yield lambda queue: queue.publish_many([("a", n) for n in range(13)])
    assert world.statuses(ids) == ["PENDING"] * 13
    assert world.drain() in (13, 26)


def publish_once(world: World) -> Disturbed:
    """With a key of idempotency, whoever is not sure publishes again, and it is there once."""
    key = str(uuid4())
    event = yield lambda queue: queue.publish("a", {"n": 1}, idempotency_key=key)
    assert world.statuses([event]) == ["PENDING"]
    assert world.drain() == 1


def publish_many_once(world: World) -> Disturbed:
    batch = [{"type": "a", "payload": n, "idempotency_key": str(uuid4())} for n in range(3)]
    ids = yield lambda queue: queue.publish_many(batch)
    assert world.statuses(ids) == ["PENDING"] * 3
    assert world.drain() == 3


def poll(world: World) -> Disturbed:
    ids = world.queue.publish_many([("a", n) for n in range(3)])
    claims = yield lambda queue: queue.poll(max_events=3, lease=LEASE)
    # Whoever does not hear of his claim has it all the same, until its time has run out.
    assert world.statuses(ids) == ["PROCESSING"] * 3
    world.queue.complete(claims)
    assert world.drain() == 3 - len(claims)
    assert world.statuses(ids) == ["COMPLETED"] * 3


def poll_each(world: World) -> Disturbed:
    ids = world.queue.publish_many([("a", n) for n in range(3)])
    claims = yield lambda queue: queue.poll(max_events=3, lease=LEASE, each=True)
    assert world.statuses(ids) == ["PROCESSING"] * 3
    world.queue.complete(claims)
    assert world.drain() == 3 - len(claims)


def poll_what_is_due(world: World) -> Disturbed:
    """Polling also ticks."""
    claims = world.claims(3)
    for claim in claims:
        world.queue.fail(claim, retry_in=10)
    world.db.advance(seconds=11)
    again = yield lambda queue: queue.poll(max_events=3, lease=LEASE)
    assert world.statuses(claims) == ["PROCESSING"] * 3
    world.queue.complete(again)
    assert world.drain() == 3 - len(again)


def complete(world: World) -> Disturbed:
    claims = world.claims(3)
    yield lambda queue: queue.complete(claims[0])
    assert world.statuses(claims) == ["COMPLETED", "PROCESSING", "PROCESSING"]
    assert world.ends(claims[0]) == ["COMPLETED"]


def complete_many(world: World) -> Disturbed:
    claims = world.claims(3)
    yield lambda queue: queue.complete(claims)
    assert [world.ends(claim) for claim in claims] == [["COMPLETED"]] * 3


def complete_held(world: World) -> Disturbed:
    claims = world.claims(3, each=True)
    yield lambda queue: queue.complete(claims)
    assert [world.ends(claim) for claim in claims] == [["COMPLETED"]] * 3


def fail(world: World) -> Disturbed:
    [claim] = world.claims(1)
    verdict = yield lambda queue: queue.fail(claim, "no luck", retry_in=10)
    assert (verdict.action, verdict.retry_count) == ("FAILED", 1)
    assert world.ends(claim) == ["FAILED"]
    assert world.drain() == 1


def fail_for_good(world: World) -> Disturbed:
    [claim] = world.claims(1)
    verdict = yield lambda queue: queue.fail(claim, "no luck", reason="no use")
    assert verdict.retry_at is None
    assert world.ends(claim) == ["FAILED", "DEAD_LETTERED"]


def release(world: World) -> Disturbed:
    [claim] = world.claims(1, each=True)
    yield lambda queue: queue.release(claim)
    assert world.ends(claim) == ["RELEASED"]
    assert world.drain() == 1


def finalize(world: World) -> Disturbed:
    [claim] = world.claims(1)
    yield lambda queue: queue.finalize(claim, ["no luck"])
    assert world.ends(claim) == ["COMPLETED_WITH_ERRORS", "DEAD_LETTERED"]


def finish(world: World) -> Disturbed:
    claims = world.claims(2) + world.claims(2, each=True)
    results = [
        Completed(claims[0]),
        Failed(claims[1], "no luck"),
        Released(claims[2]),
        Failed(claims[3], "no luck", reason="no use"),
    ]
    verdicts = yield lambda queue: queue.finish(results)
    actions = ["COMPLETED", "FAILED", "RELEASED", "FAILED"]
    assert [verdict.action for verdict in verdicts] == actions
    assert [world.ends(claim)[0] for claim in claims] == actions
    assert world.drain() == 2


def complete_one_of_a_key(world: World) -> Disturbed:
    first, *rest = world.publish_in_order(3)
    [claim] = world.queue.poll(max_events=3)
    assert claim.id == first
    yield lambda queue: queue.complete(claim)
    [following] = world.queue.poll(max_events=3)
    assert following.id == rest[0]
    world.queue.release(following)
    assert world.drain() == 2


def fail_one_of_a_key(world: World) -> Disturbed:
    first, *_ = world.publish_in_order(2)
    [claim] = world.queue.poll(max_events=2)
    yield lambda queue: queue.fail(claim, "no luck", retry_in=10)
    assert world.queue.poll(max_events=2) == []  # the first keeps its turn
    world.db.advance(seconds=11)
    [again] = world.queue.poll(max_events=2)
    assert (again.id, again.attempt) == (first, 2)
    world.queue.release(again)
    assert world.drain() == 2


def poll_of_keys(world: World) -> Disturbed:
    ids = world.publish_in_order(2)
    claims = yield lambda queue: queue.poll(max_events=2, lease=LEASE)
    assert world.statuses(ids) == ["PROCESSING", "PENDING"]
    world.queue.complete(claims)
    assert world.drain() == 2 - len(claims)


def cancel(world: World) -> Disturbed:
    claims = world.claims(2)
    yield lambda queue: queue.cancel(claims[0].id)
    assert world.statuses(claims) == ["CANCELLED", "PROCESSING"]
    assert world.ends(claims[0]) == ["CANCELLED"]


def reset(world: World) -> Disturbed:
    claims = world.claims(2)
    yield lambda queue: queue.reset(claims[0].id)
    assert world.statuses(claims) == ["PENDING", "PROCESSING"]
    assert world.ends(claims[0]) == ["RESET"]


def redrive(world: World) -> Disturbed:
    claims = world.claims(2)
    for claim in claims:
        world.queue.fail(claim, "no luck", reason="no use")
    yield lambda queue: queue.redrive([claim.id for claim in claims])
    assert [world.ends(claim)[2:] for claim in claims] == [["REDRIVEN"]] * 2
    assert world.drain() == 2


def purge(world: World) -> Disturbed:
    ids = world.queue.publish_many([("a", n) for n in range(3)])
    yield lambda queue: queue.purge("ready")
    assert world.statuses(ids) == ["CANCELLED"] * 3


def pause(world: World) -> Disturbed:
    ids = world.queue.publish_many([("a", n) for n in range(2)])
    yield lambda queue: queue.pause()
    assert world.queue.poll(max_events=2) == []
    world.queue.resume()
    assert world.statuses(ids) == ["PENDING"] * 2


def extend(world: World) -> Disturbed:
    claims = world.claims(2)
    yield lambda queue: queue.extend(claims, 600)
    world.db.advance(seconds=LEASE + 1)
    world.queue.tick()
    assert world.statuses(claims) == ["PROCESSING"] * 2


def save_progress(world: World) -> Disturbed:
    claims = [*world.claims(2), *world.claims(1, each=True)]
    yield lambda queue: [queue.save_progress(claim, {"done": ["a"]}) for claim in claims]
    assert world.queue.progress(claim.id for claim in claims) == {
        claim.id: {"done": ["a"]} for claim in claims
    }
    world.queue.complete(claims)


def tick(world: World) -> Disturbed:
    claims = [*world.claims(3), *world.claims(2, each=True), *world.claims(1)]
    world.queue.fail(claims[-1], retry_in=10)
    world.db.advance(seconds=LEASE + 1)
    yield lambda queue: queue.tick()
    assert world.statuses(claims) == ["PENDING"] * 6
    assert [world.ends(claim) for claim in claims] == [["ABANDONED"]] * 5 + [["FAILED"]]
    assert world.drain() == 6


def upkeep(world: World) -> Disturbed:
    claims = world.claims(2)
    yield lambda queue: queue.tick(upkeep=True)
    world.queue.complete(claims)


def ask(world: World) -> Disturbed:
    [claim] = world.claims(1, each=True)
    told = yield lambda queue: (
        queue.event(claim.id).status,
        len(queue.log(claim.id)),
        queue.stats().processing,
        queue.resolve(claim),
    )
    assert told == ("PROCESSING", 2, 1, None)


def checkpoint(world: World) -> Disturbed:
    [first, _] = world.claims(2)
    world.queue.complete(first)
    taken = yield lambda queue: queue.checkpoint()
    assert (taken.checkpoint_id, taken.lag) == (str(first.id), 1)
    assert world.queue.checkpoints()[0].id == taken.id


def replay(world: World) -> Disturbed:
    ids = world.queue.publish_many([("once more", n) for n in range(3)])
    told = yield lambda queue: list(queue.replay(from_checkpoint=ids[0], types=["once more"]))
    assert [event.id for event in told] == ids[1:]
    assert world.drain() == 3


CALLS = [
    publish, publish_many, publish_very_many, publish_once, publish_many_once, poll, poll_each, poll_what_is_due,
    poll_of_keys, complete, complete_many, complete_held, complete_one_of_a_key, fail, fail_for_good, fail_one_of_a_key, release, finalize, finish,
    cancel, reset, redrive, purge, pause, extend, save_progress, checkpoint, replay, tick, upkeep, ask,
]  # fmt: skip
# Several statements, each of which stays done when a later one fails.
SEVERAL = [poll, poll_each, poll_what_is_due, poll_of_keys, save_progress]


class Disturbance(Protocol):
    """Something that goes wrong once, at a place that is counted from 1."""

    def arm(self) -> None: ...

    def has_struck(self) -> bool:
        """Whether it has happened; if not, it will not any more, and there were fewer places."""

    def check(self) -> None:
        """The call has failed: has it left things as this disturbance must leave them?"""


def comes_to_the_right_end(
    call: Callable[[World], Disturbed],
    world: World,
    queue: Any,
    disturbance: Disturbance,
) -> bool:
    """Whether there was something to disturb: the call is made once with the disturbance, and then until it is
    done, as by somebody who wants it to be done."""
    steps = call(world)
    todo = next(steps)
    disturbance.arm()
    try:
        result = todo(queue)
        struck = disturbance.has_struck()
    except psycopg.OperationalError:
        struck = disturbance.has_struck()
        assert struck, "something else went wrong"
        disturbance.check()
        check_places(world.db.sql)
        result = insist(lambda: todo(queue))
    with pytest.raises(StopIteration):
        steps.send(result)
    world.drain()
    check_places(world.db.sql)
    return struck


def insist(call: Callable[[], Any]) -> Any:
    while True:
        try:
            return call()
        except psycopg.OperationalError:
            continue
