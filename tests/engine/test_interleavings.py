"""Whatever two do at the same time, in whatever order of their statements: no delivery is lost, doubled or torn, all come to
one end, and who promises not to wait does not."""

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.interleavings import Actor, Step, orders, play
from tests.engine.races_helpers import Session
from tests.places import check_places
from tests.requirements import requirement

ENDS = [("commit", "commit"), ("commit", "rollback"), ("rollback", "commit")]
PLAN = """
select headrace.plan_task('default', task_id, version, array[headrace._now() + interval '1 s'])
from headrace.schedules('default') where name = %s
"""
LEFT = "select count(*) from headrace.deliveries"
FINISHED = """
select m.event, q.name, sum(case o.action when 'RERUN' then -1 else 1 end) from headrace.outcomes o
cross join lateral unnest(o.events) as m(event) join headrace.queues q on q.id = o.queue
where o.action in ('COMPLETED', 'CANCELLED', 'SUPERSEDED', 'RERUN') and m.event > %s group by 1, 2
"""
TWICE = """
select e.details ->> 'unique' as key from headrace.events e
where e.details ? 'unique' and headrace._is_unfinished(e.namespace, e.id, e.created_at) group by 1 having count(*) > 1
union all
select e.details ->> 'debounce' from headrace.events e join headrace.deliveries d on d.event = e.id
where e.details ? 'debounce' and d.lease is null and d.attempts = 0 and %s group by 1 having count(*) > 1
"""


class Stage:
    """What two actors meet: deliveries in work whose leases have run out and nobody has noticed, one of an ordering key with
    another behind it and those of a batch that are not done; the only one of its key in work in good time; some that
    wait; and a schedule that is due."""

    def __init__(self, db: Database, number: int) -> None:
        self.db = db
        self.key, self.lone, self.queue = f"key{number}", f"lone{number}", f"queue{number}"
        worker = self.worker = Session(db)
        self.before = worker.sql("select last_value from headrace.ids")[0][0]
        self.task = f"task{number}"
        worker.sql("select headrace.schedule_task('default', %s, '* * * * *')", [self.task])
        worker.sql(PLAN, [self.task])
        worker.publish(key=self.key)
        self.late = worker.poll(each=True, lease="1 second", worker="dead")
        worker.publish(3)
        ended, *self.late_batch = worker.poll(3, lease="1 second", worker="dead")
        worker.finish([ended])
        db.advance(seconds=2)
        worker.publish(key=self.lone)
        self.held = worker.poll(each=True, lease="1 hour", worker="alive", suspects=False)
        worker.publish(2)
        worker.publish(key=self.key)

    @property
    def late_ones(self) -> list[Any]:
        return [*self.late, *self.late_batch]

    def clear(self) -> None:
        """All that is left comes to one end, and then nothing is left."""
        self.worker.sql("select headrace.remove_schedule('default', %s)", [self.task])
        queues = [
            name for (name,) in self.worker.sql("select name from headrace.queues('default')")
        ]
        for _ in range(60):
            if self.worker.sql(LEFT)[0][0] == 0:
                break
            self.db.advance(hours=2)
            while self.worker.tick().more:
                pass
            for queue in queues:
                for each in (False, True):
                    self.complete_all(queue, each)
        assert self.worker.sql(LEFT) == [(0,)], "something is left that nobody gets"
        check_places(self.worker.sql)
        assert {count for _, _, count in self.worker.sql(FINISHED, [self.before])} == {1}
        for queue in set(queues) - {"main"}:
            self.worker.sql("select headrace.delete_queue('default', %s)", [queue])
            self.worker.keep_up()
        self.worker.connection.close()

    def complete_all(self, queue: str, each: bool) -> None:
        poll = "select * from headrace.poll('default', %s, max_events => 100, each => %s)"
        for claim in self.worker.sql(poll, [queue, each]):
            done = "select headrace.complete('default', %s, %s, %s, %s)"
            self.worker.sql(
                done, [claim.id, claim.attempt, queue, None if claim.held else claim.lease]
            )


def finish(stage: Stage, **other: Any) -> Step:
    return lambda session: session.finish([*stage.late_ones, *stage.held], **other)


def each_of(stage: Stage, call: str) -> Step:
    def do(session: Session) -> None:
        for claim in (stage.late[0], stage.late_batch[0], stage.held[0]):
            session.sql(f"select headrace.{call}('default', %s)", [claim.id])

    return do


def publish(stage: Stage) -> Step:
    events = Jsonb([{"key": stage.key}, {"key": stage.lone}, {"type": "other"}, {"delay": 1}])
    return lambda session: session.sql("select headrace.publish('default', %s)", [events])


def new_queue(stage: Stage) -> Step:
    create = "select headrace.create_queue('default', %s, after => %s)"
    return lambda session: session.sql(create, [stage.queue, stage.before])


def extend(stage: Stage) -> Step:
    leases = {claim.lease for claim in [*stage.late_ones, *stage.held]}
    return lambda session: session.extend(*leases)


CALLS: dict[str, Callable[[Stage], Step]] = {
    "poll": lambda stage: lambda session: session.poll(3),
    "poll each": lambda stage: lambda session: session.poll(3, each=True),
    "extend": extend,
    "finish": finish,
    "fail": lambda stage: finish(stage, action="fail", retry_in=0),
    "release": lambda stage: finish(stage, action="release"),
    "reap": lambda stage: lambda session: session.tick(),
    "cancel": lambda stage: each_of(stage, "cancel"),
    "reset": lambda stage: each_of(stage, "reset"),
    "publish": publish,
    "new queue": new_queue,
    "schedule": lambda stage: lambda session: session.sql("select headrace._tick_schedules(100)"),
}
MAY_WAIT = {"finish", "fail", "release", "cancel", "reset", "new queue"}

SAMPLE = [("finish", "reap"), ("finish", "publish")]


def pairs() -> Iterator[Any]:
    """Every two of them. `make test` takes some."""
    for one, other in combinations_with_replacement(CALLS, 2):
        marks = [] if (one, other) in SAMPLE else [pytest.mark.long]
        yield pytest.param(one, other, id=f"{one} and {other}", marks=marks)


@requirement("G4", "G5", "G6", "G7", "G8", "G11", "G12")
@pytest.mark.parametrize(("one", "other"), list(pairs()))
def test_in_every_order_all_come_to_one_end(db: Database, one: str, other: str) -> None:
    """Each makes its call in a transaction, and commits or rolls back. (That it begins earlier would change nothing: under
    READ COMMITTED a transaction knows nothing before its first statement.)"""
    sessions = [Session(db), Session(db)]
    number = 0
    for ends in ENDS:
        for order in orders(2, 2):
            number += 1
            stage = Stage(db, number)
            actors = [
                Actor(name, [in_transaction(CALLS[name](stage)), ending(end)], name in MAY_WAIT)
                for name, end in zip((one, other), ends, strict=True)
            ]
            play(db, actors, sessions, order)
            check_places(db.sql)
            stage.clear()


class Swept(Stage):
    """The same, and the leases that have run out have been noticed: what they held waits, abandoned."""

    def __init__(self, db: Database, number: int) -> None:
        super().__init__(db, number)
        self.worker.reap()


LATE_PAIRS = [
    (one, other)
    for one in ("finish", "fail")
    for other in ("poll", "poll each", "reap", "reset", "cancel", "finish", "fail", "publish")
]
LATE_SAMPLE = [("finish", "poll"), ("fail", "poll each"), ("finish", "reset"), ("fail", "finish")]


def late_pairs() -> Iterator[Any]:
    for one, other in LATE_PAIRS:
        marks = [] if (one, other) in LATE_SAMPLE else [pytest.mark.long]
        yield pytest.param(one, other, id=f"late {one} and {other}", marks=marks)


@requirement("G5", "G6", "G7", "G11")
@pytest.mark.parametrize(("one", "other"), list(late_pairs()))
def test_in_every_order_a_late_end_counts_or_is_lost(db: Database, one: str, other: str) -> None:
    sessions = [Session(db), Session(db)]
    number = 0
    for ends in ENDS:
        for order in orders(2, 2):
            number += 1
            stage = Swept(db, number)
            actors = [
                Actor(name, [in_transaction(CALLS[name](stage)), ending(end)], name in MAY_WAIT)
                for name, end in zip((one, other), ends, strict=True)
            ]
            play(db, actors, sessions, order)
            check_places(db.sql)
            stage.clear()


class Limited(Stage):
    """The same, and no more than the two that are in work, and one more, may be so at once."""

    def __init__(self, db: Database, number: int) -> None:
        super().__init__(db, number)
        self.running = len([*self.late_ones, *self.held])
        self.limit(self.running + 1)
        self.worker.sql(KNOWN_GROUP)

    def limit(self, at_once: int | None) -> None:
        limits = [] if at_once is None else [{"scope": "queue", "at_once": at_once}]
        self.worker.sql(CHANGE, [Jsonb({"limits": limits})])

    def clear(self) -> None:
        [(running,)] = self.worker.sql(
            "select count(*) from headrace.deliveries where lease is not null"
        )
        told = self.worker.sql("select in_progress from headrace.limits('default')")
        assert running <= self.running + 1
        assert told == ([(running,)] if running else []) or running == 0
        self.limit(None)
        super().clear()


# Two claims that make the same group wait a millisecond; this one is there.
KNOWN_GROUP = """
insert into headrace.limit_groups (queue, scope, name)
select q.id, 'queue', '' from headrace.queues q where q.name = 'main' on conflict do nothing
"""
CHANGE = "select headrace.change_queue('default', 'main', %s)"
LIMITED_CALLS = {
    **CALLS,
    "lower": lambda stage: (
        lambda session: session.sql(
            CHANGE, [Jsonb({"limits": [{"scope": "queue", "at_once": stage.running}]})]
        )
    ),
}
LIMITED_WITH = ("poll", "poll each", "lower")


def limited_pairs() -> Iterator[Any]:
    """Each call with those that count slots. `make test` takes some."""
    sample = [("poll", "poll"), ("poll", "finish"), ("poll", "lower")]
    for one in LIMITED_WITH:
        for other in LIMITED_CALLS:
            marks = [] if (one, other) in sample else [pytest.mark.long]
            yield pytest.param(one, other, id=f"{one} and {other}", marks=marks)


@pytest.mark.parametrize(("one", "other"), list(limited_pairs()))
@requirement("G25")
def test_in_every_order_a_limit_holds(db: Database, one: str, other: str) -> None:
    sessions = [Session(db), Session(db)]
    number = 0
    for ends in ENDS:
        for order in orders(2, 2):
            number += 1
            stage = Limited(db, number)
            actors = [
                Actor(
                    name,
                    [in_transaction(LIMITED_CALLS[name](stage)), ending(end)],
                    name in MAY_WAIT | {"lower"},
                )
                for name, end in zip((one, other), ends, strict=True)
            ]
            play(db, actors, sessions, order)
            check_places(db.sql)
            stage.clear()


def in_transaction(step: Step) -> Step:
    def do(session: Session) -> None:
        session.begin()
        step(session)

    return do


def ending(how: str) -> Step:
    return lambda session: session.sql(how)


class Again(Stage):
    """The same, and a unique key that is held, a dead letter of another, a debounced event that is due, and one that
    has ended."""

    def __init__(self, db: Database, number: int) -> None:
        super().__init__(db, number)
        worker = self.worker
        self.unique, self.debounce = f"unique{number}", f"debounce{number}"
        self.free = f"free{number}"
        [self.done] = worker.publish(type="done")
        worker.finish(worker.poll(types=["done"]))
        [self.dead] = worker.publish(type="dead", unique=self.free)
        worker.finish(worker.poll(types=["dead"]), action="fail", max_retries=0)
        worker.publish(type="once", unique=self.unique)
        worker.publish(type="settled", debounce=self.debounce, settle=1)
        db.advance(seconds=1)
        worker.sql("select headrace._tick_due(100)")


def publish_one(**event: Any) -> Step:
    return lambda session: session.sql("select headrace.publish('default', %s)", [Jsonb(event)])


AGAIN: dict[str, Callable[[Again], Step]] = {
    "unique": lambda stage: publish_one(type="once", unique=stage.unique),
    "debounce": lambda stage: publish_one(type="settled", debounce=stage.debounce, settle=1),
    "snooze": lambda stage: finish(stage, action="release", delay=1),
    "rerun": lambda stage: (
        lambda session: session.sql("select headrace.rerun('default', %s)", [stage.done])
    ),
    "redrive": lambda stage: (
        lambda session: session.sql(
            "select headrace.redrive('default', 'main', array[%s::bigint])", [stage.dead]
        )
    ),
    "reset of the dead one": lambda stage: (
        lambda session: session.sql("select headrace.reset('default', %s)", [stage.dead])
    ),
    "unique as the dead one": lambda stage: publish_one(type="once", unique=stage.free),
    "end of the unique one": lambda stage: (
        lambda session: session.finish(session.poll(types=["once"]))
    ),
    "claim of the settled one": lambda stage: lambda session: session.poll(types=["settled"]),
    "tick": lambda stage: lambda session: session.sql("select headrace._tick_due(100)"),
    "erase": lambda stage: (
        lambda session: session.sql("select headrace.erase('default', %s)", [stage.done])
    ),
}
NEVER_WAIT = {"claim of the settled one", "end of the unique one", "tick"}
AGAIN_SAMPLE = [
    ("unique", "unique"),
    ("debounce", "claim of the settled one"),
    ("rerun", "rerun"),
    ("redrive", "unique as the dead one"),
]


def pairs_of_again() -> Iterator[Any]:
    """Every two of them, and each with those above that touch what it does."""
    others = ("poll", "finish", "fail", "reap", "cancel", "reset", "publish")
    both = [*combinations_with_replacement(AGAIN, 2), *((o, a) for o in others for a in AGAIN)]
    for one, other in both:
        marks = [] if (one, other) in AGAIN_SAMPLE else [pytest.mark.long]
        yield pytest.param(one, other, id=f"{one} and {other}", marks=marks)


@requirement("G5", "G6", "G7", "G26")
@pytest.mark.parametrize(("one", "other"), list(pairs_of_again()))
def test_in_every_order_a_key_is_held_once_and_each_drive_has_one_end(
    db: Database, one: str, other: str
) -> None:
    sessions = [Session(db), Session(db)]
    number = 0
    for ends in ENDS:
        for order in orders(2, 2):
            number += 1
            stage = Again(db, number)
            actors = [
                Actor(
                    name,
                    [in_transaction({**CALLS, **AGAIN}[name](stage)), ending(end)],
                    name in MAY_WAIT or (name in AGAIN and name not in NEVER_WAIT),
                )
                for name, end in zip((one, other), ends, strict=True)
            ]
            play(db, actors, sessions, order)
            check_places(db.sql)
            # A debounced event may wait beside one that was being claimed or made ready at that moment.
            alone = not {one, other} & {"claim of the settled one", "tick", "poll", "reap"}
            assert db.sql(TWICE, [alone]) == []
            stage.clear()
