"""What an attempt leaves for the next one, through the clients."""

from typing import Any

import pytest

from headrace import Claim, Failed, InvalidPayload, LeaseLost, PayloadTooLarge, Released
from tests.client.clients import Client


def test_what_is_saved_is_found_by_the_next_attempt(queue: Any) -> None:
    event = queue.publish("report")
    [claimed] = queue.poll()
    assert queue.progress([event.id, 0, -1, 2**70]) == {}
    queue.save_progress(claimed, {"page": 7, "done": ["ü"]})
    queue.fail(claimed, "no", retry_in=0)
    [again] = queue.poll()
    assert queue.progress([again.id]) == {event.id: {"page": 7, "done": ["ü"]}}
    assert queue.progress([]) == {}


@pytest.mark.parametrize("each", [False, True])
def test_an_end_saves_what_it_is_given_and_else_leaves_it(queue: Any, each: bool) -> None:
    ids = queue.publish_many([("a", 1), ("a", 2), ("a", 3)])
    one, two, three = queue.poll(max_events=3, each=each)
    queue.save_progress(three, "before")
    queue.finish([Failed(one, "no", progress={"done": ["x"]}), Released(two, progress=[2]), Released(three)])  # fmt: skip
    assert queue.progress(ids) == {one.id: {"done": ["x"]}, two.id: [2], three.id: "before"}


@pytest.mark.one_database("a transaction is one database's")
def test_it_is_kept_if_the_callers_transaction_commits(queue: Any, client: Client) -> None:
    queue.publish_many([("a", 1), ("a", 2)])
    kept, dropped = queue.poll(max_events=2, each=True)
    connection = client.connection()
    with client.within(connection.transaction()):
        queue.save_progress(kept, 1, connection=connection)
    with client.within(connection.transaction(force_rollback=True)):
        queue.save_progress(dropped, 2, connection=connection)
    assert queue.progress([kept.id, dropped.id]) == {kept.id: 1}


def test_a_lost_claim_is_told_with_its_event(queue: Any) -> None:
    queue.publish()
    [claimed] = queue.poll()
    queue.complete(claimed)
    for lost in (claimed, Claim(claimed.id, 7), Claim(2**70, 1), Claim(0, 1)):
        with pytest.raises(LeaseLost, match="nothing was changed") as told:
            queue.save_progress(lost, 1)
        assert told.value.ids == (lost.id,)


def test_what_is_no_json_is_refused(queue: Any) -> None:
    queue.publish()
    [claimed] = queue.poll()
    for wrong in (object(), float("nan"), "\0", "\ud800"):
        with pytest.raises(InvalidPayload, match="the progress"):
            queue.save_progress(claimed, wrong)
    with pytest.raises(PayloadTooLarge, match="64 KiB"):
        queue.save_progress(claimed, "x" * 65_536)
    assert queue.progress([claimed.id]) == {}
