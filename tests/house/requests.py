"""Every operation of the server, one request after the other."""

import re

from tests.database import Database
from tests.engine.every_function import live
from tests.house.recording import Called, Recorder
from tests.server.every_operation import REQUESTS, REQUESTS_OF_ALL, prepared
from tests.server.running import running

# Statements of the server's upkeep and of whoever waits for events, which it sends as often as there is time for; what a pool
# says on each connection that it happens to open; and the tokens, which it asks for again when it has known them for a while.
PERIODIC = re.compile(
    r"headrace\._?(tick|tasks_to_plan|plan_task|fall_asleep|wake_up|log_waits|live_tokens)\("
    r"|^set default_transaction_isolation|^set (idle_session|lock|statement)_timeout|^(un)?listen "
)
# The dashboard's and the documentation's files say nothing to PostgreSQL. What is said for a stream, and when, is a matter of
# its timers.
LEFT_OUT = {"GET /events/stream"}


def request(db: Database, through: Database, recorder: Recorder) -> list[Called]:
    told: list[Called] = []
    life = live(db, "here")
    token = db.queue().create_token("all", ["admin"])
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    with running(through) as house, house.client() as client:
        planned: list[list[str]] = []
        db.wait_for(lambda: bool(planned.extend(recorder.take())) or has_planned(planned))
        for name in (*REQUESTS_OF_ALL, *REQUESTS):
            if name in LEFT_OUT:
                continue
            asked = prepared(name, life)
            recorder.take()
            answer = client.request(
                *(asked.method, asked.target),
                content=asked.content,
                headers=headers,
            )
            assert answer.status_code < 400, answer.text
            told.append((f"{name}: {answer.status_code}", steady(recorder.take())))
    return told


def has_planned(trips: list[list[str]]) -> bool:
    """Whether the upkeep has planned the schedules of both namespaces, before which it asks for all of them; then it does so no
    more for a minute."""
    return (
        sum("tasks_to_plan(" in trip[0] for trip in trips if trip and trip[0][:8] != "prepare ") > 1
    )


def steady(trips: list[list[str]]) -> list[list[str]]:
    """Without what depends on time, and on which connection of a pool is taken."""
    return sorted(
        trip
        for trip in trips
        if trip and not trip[0].startswith("prepare ") and not PERIODIC.search(trip[0])
    )
