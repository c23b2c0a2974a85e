"""The EventQueue document (000), its sequence diagram with a node as the EventManager.

It dispatches to all handlers of an event and collects their errors: dispatch="collect". A failure is an end there, so its
events have max_retries=0.
"""

import asyncio
from typing import Any

import pytest

from headrace import Claimed, Discard, Done, Node
from tests.database import Database
from tests.node.nodes import OUTLASTS, node, running, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def log(db: Database, event_id: int) -> list[str]:
    query = "select action from headrace.event_log where event_id = %s order by id"
    return [action for (action,) in db.sql(query, [event_id])]


def is_gone(db: Database, event_id: int) -> bool:
    return db.sql("select from headrace.event_queue where id = %s", [event_id]) == []


def manager(db: Database) -> tuple[Node, list[str]]:
    """An EventManager with two handlers, one of which has its troubles."""
    one = node(db, "manager", dispatch="collect", lease=OUTLASTS)
    handled: list[str] = []

    @one.on_event("user.created")
    async def mail(event: Claimed) -> Done:
        handled.append("mail")
        return Done()

    @one.on_event("user.*")
    def index(event: Claimed) -> Any:
        handled.append("index")
        if event.payload.get("breaks"):
            raise ValueError(f"cannot index {event.id}")
        return Discard("nothing to index") if event.payload.get("is_empty") else None

    return one, handled


@requirement("EQ-1", "EQ-13", "EQ-14")
async def test_success_all_handlers_say_ok_and_the_event_is_completed(db: Database) -> None:
    queue = db.queue()
    event = queue.publish("user.created", {"user": 1}, max_retries=0)
    one, handled = manager(db)
    async with running(one):
        await until(lambda: is_gone(db, event.id))
    assert sorted(handled) == ["index", "mail"]
    assert log(db, event.id) == ["EMITTED", "PICKED", "COMPLETED"]


@requirement("EQ-13", "EQ-14", "EQ-18")
@pytest.mark.parametrize("trouble", ["breaks", "is_empty"])
async def test_failure_the_errors_are_collected_and_the_event_is_completed_with_errors(
    db: Database, trouble: str
) -> None:
    queue = db.queue()
    event = queue.publish("user.created", {"user": 1, trouble: True}, max_retries=0)
    one, handled = manager(db)
    async with running(one):
        await until(lambda: is_gone(db, event.id))
    assert sorted(handled) == ["index", "mail"], "whatever becomes of the other"
    assert queue.event(event.id).status == "COMPLETED_WITH_ERRORS"
    assert "COMPLETED_WITH_ERRORS" in log(db, event.id)
    said = {"breaks": f"cannot index {event.id}", "is_empty": "nothing to index"}
    assert said[trouble] in (queue.dead_letter(event.id).error or "")


@requirement("EQ-5", "EQ-8", "EQ-13", "EQ-15")
async def test_crash_another_manager_gets_the_event_when_its_minute_is_over(db: Database) -> None:
    dead = db.queue(worker="pod-1:17")
    event = dead.publish("user.created", {"user": 1}, max_retries=2)
    [lost] = dead.poll(lease=60)
    one, handled = manager(db)
    async with running(one):
        assert handled == []
        db.advance(seconds=61)
        await until(lambda: is_gone(db, event.id))
    assert sorted(handled) == ["index", "mail"]
    found = dead.event(event.id)
    assert (found.status, found.attempts, lost.attempt) == ("COMPLETED", 2, 1)


@requirement("EQ-18")
@pytest.mark.parametrize(
    ("dispatch", "status"), [("collect", "COMPLETED_WITH_ERRORS"), ("atomic", "FAILED")]
)
async def test_poison_ends_as_the_dispatch_of_its_managers_says(
    db: Database, dispatch: Any, status: str
) -> None:
    """Each manager hangs with the event in its hands until its lease has run out, and is stopped."""
    queue = db.queue()
    event = queue.publish("poison", max_retries=1)
    for n in range(2):
        one = node(db, f"manager-{n}", dispatch=dispatch, grace=0)
        began = asyncio.Event()

        @one.on_event("poison")
        async def handle(event: Claimed, began: Any = began) -> None:
            began.set()
            await asyncio.Event().wait()

        async with running(one):
            await asyncio.wait_for(began.wait(), 30)
            [(collects,)] = db.sql("select collects from headrace.leases")
            assert collects is (dispatch == "collect")
            queue.pause()  # it is not to come to the same manager again
            with db.connect() as other, other.transaction():
                other.execute("update headrace.leases set until = headrace._now() - interval '1 s'")
                other.execute("select headrace._tick_expired(10)")
        queue.resume()
    assert queue.event(event.id).status == status
    assert log(db, event.id)[-3:] == ["ABANDONED", status, "DEAD_LETTERED"]
