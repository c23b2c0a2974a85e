"""Handlers that do not end when they are told to: their process does, and says what was still running."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.node.overseer import CUT_OFF
from tests.database import Database
from tests.faults.crew import Crew, Worker, actions, crew_of, eventually
from tests.faults.test_node_shutdown import REST, is_pending
from tests.requirements import requirement

GRACE = 0.5


@pytest.fixture
def crew(db: Database, tmp_path: Path) -> Iterator[Crew]:
    """With leases that no test outlives: what is handed back was handed back."""
    with crew_of(db, tmp_path, lease=600, grace=GRACE) as crew:
        yield crew


def is_free(db: Database, id: int) -> bool:
    """Whether an event can be claimed by anybody, and nothing was charged to it."""
    waiting = "select lease, failures, crashes, suspect from headrace.deliveries where event = %s"
    return bool(db.sql(waiting, [id]) == [(None, 0, 0, False)])


def begun(worker: Worker, count: int = 1) -> None:
    eventually(lambda: len(worker.starts) == count)


def tell(worker: Worker, times: int) -> None:
    for _ in range(times):
        worker.signal(signal.SIGTERM)
        eventually(lambda: not worker.is_alive() or not is_pending(worker))


@requirement("G14", "G23")
@pytest.mark.parametrize(
    ("type", "times", "code", "said"),
    [
        ("swallow", 1, 0, "swallow (event"),
        ("block", 1, CUT_OFF, "block_the_loop (event"),
        ("spin", 2, CUT_OFF, "spin (event"),
        pytest.param("swallow", 2, 0, "swallow (event", marks=REST),
        pytest.param("executor", 1, 0, "executor (event", marks=REST),
        pytest.param("block", 2, CUT_OFF, "block_the_loop (event", marks=REST),
        pytest.param("spin", 1, CUT_OFF, "spin (event", marks=REST),
    ],
)
def test_a_worker_ends_though_a_handler_does_not_and_its_events_are_handed_back(
    db: Database, crew: Crew, type: str, times: int, code: int, said: str
) -> None:
    queue = db.queue()
    worker = crew.start(grace=GRACE if times == 1 else 3600, concurrency=1)
    ids = [queue.publish(type, 3600).id]
    begun(worker)
    ids.append(queue.publish(type, 3600).id)
    tell(worker, times)
    assert worker.ends() == code
    assert all(is_free(db, id) for id in ids)
    assert any(said in line for line in worker.said)
    assert len(worker.starts) == 1


@requirement("G14", "G23")
@pytest.mark.parametrize(
    ("type", "times"),
    [
        ("backtrack", 1),
        pytest.param("backtrack", 2, marks=REST),
        pytest.param("backtrack.plainly", 1, marks=REST),
    ],
)
def test_a_worker_is_killed_if_a_handler_keeps_all_of_python_from_running(
    db: Database, crew: Crew, type: str, times: int, capfd: pytest.CaptureFixture[str]
) -> None:
    id = db.queue().publish(type).id
    worker = crew.start(grace=GRACE if times == 1 else 3600)
    begun(worker)
    tell(worker, times)
    assert worker.ends() == -signal.SIGKILL
    said = capfd.readouterr().err
    assert f"the worker {worker.pid} is killed: it was told to end" in said
    assert "in backtrack" in said, "faulthandler did not say where it was"
    assert actions(db.queue(), id)[-1] == "PICKED"


@requirement("G23")
def test_a_handler_that_blocks_the_loop_beyond_timeout_and_grace_ends_its_process(
    db: Database, crew: Crew
) -> None:
    queue = db.queue()
    ids = [queue.publish(type, 3600).id for type in ("sleep", "late.block")]
    worker = crew.start()
    assert worker.ends() == CUT_OFF
    assert is_free(db, ids[0])
    event = queue.event(ids[1])
    assert (event.status, event.retry_count) == ("PENDING", 1)
    assert any("block_for_longer_than_its_timeout" in line for line in worker.said)


@requirement("G23")
@pytest.mark.long
def test_a_process_in_which_nothing_runs_any_more_is_killed_when_its_leases_have_run_out(
    db: Database, crew: Crew, capfd: pytest.CaptureFixture[str]
) -> None:
    db.queue().publish("late.backtrack")
    worker = crew.start(lease=1)
    assert worker.ends() == -signal.SIGKILL
    assert "nothing in it has run for" in capfd.readouterr().err


@requirement("G23")
def test_a_worker_with_too_many_abandoned_handlers_ends_in_order_and_asks_for_a_restart(
    db: Database, crew: Crew
) -> None:
    queue = db.queue()
    worker = crew.start(concurrency=10, grace=10)
    ids = queue.publish_many([("late.hang", None)] * 10)
    assert worker.ends() == CUT_OFF
    for id in ids:
        event = queue.event(id)
        assert (event.status, event.retry_count) == ("PENDING", 1)
    assert any("its process should be restarted" in line for line in worker.said)


def test_no_watchdog_outlives_its_worker(db: Database, crew: Crew) -> None:
    [worker] = crew.start_some(1)
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    assert len(children) == 1
    worker.kill()
    eventually(lambda: not Path(f"/proc/{children[0]}").exists())


def test_a_worker_whose_watchdog_was_killed_ends_in_order(db: Database, crew: Crew) -> None:
    [worker] = crew.start_some(1)
    [child] = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    eventually(lambda: any("the node goes on without it" in line for line in worker.said))
    crew.stop()


def test_a_signal_to_a_child_that_a_handler_has_forked_is_not_the_workers(
    db: Database, crew: Crew
) -> None:
    queue = db.queue()
    worker = crew.start(grace=0)
    ids = [queue.publish("fork", max_retries=0).id for _ in range(2)]
    eventually(lambda: all(queue.event(id).status == "COMPLETED" for id in ids))
    [child] = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    assert "watchdog" in Path(f"/proc/{child}/cmdline").read_text()
    crew.stop()
