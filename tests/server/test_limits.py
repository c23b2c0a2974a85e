"""Limits and turns over HTTP: set, held, shown, taken away."""

from typing import Any

import httpx
import pytest

from tests.server.running import Running

LIMITS = [
    {"scope": "tag", "prefix": "tenant:", "at_once": 2},
    {"scope": "type", "match": "mail.*", "rate": 100, "per": 60.0, "burst": 20},
]


@pytest.fixture
def queue(house: Running, api: httpx.Client) -> Any:
    """Changes the settings of the queue main, and asks about it."""
    path = f"/queues/{api.params['namespace']}/main"
    with house.client() as admin:

        def ask(settings: dict[str, Any] | None = None, what: str = "") -> httpx.Response:
            return admin.get(path + what) if settings is None else admin.patch(path, json=settings)

        yield ask


def claim(api: httpx.Client, worker: str = "w") -> list[int]:
    answer = api.post("/events/claim", json={"worker_id": worker, "limit": 10})
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["events"]]


def test_a_limit_is_set_held_and_shown(api: httpx.Client, queue: Any) -> None:
    settings = {"limits": LIMITS, "fair_by": {"tag": "tenant:"}, "aging": 600.0}
    changed = queue(settings)
    assert changed.status_code == 200, changed.text
    assert {name: queue().json()[name] for name in settings} == settings
    events = [{"type": "mail.a", "tags": "tenant:a"}] * 5 + [{"tags": "tenant:b"}]
    ids = api.post("/events/batch", json={"events": events}).json()["ids"]
    first = claim(api)
    assert sorted(first) == [*ids[:2], ids[5]]
    assert claim(api) == []
    full, free = queue(what="/limits").json()["limits"]
    assert (full["name"], full["at_once"], full["in_progress"]) == ("tenant:a", 2, 2)
    assert (full["room"], full["waiting"]) == (0, 3)
    assert (free["name"], free["in_progress"], free["room"]) == ("tenant:b", 1, 1)
    [reason] = [
        one
        for one in api.get(f"/events/{ids[2]}/why").json()["reasons"]
        if one["code"] == "limited"
    ]
    assert reason["about"]["held_by"] == ids[:2]
    assert api.post(f"/events/{ids[0]}/complete", json={"worker_id": "w"}).status_code == 200
    assert claim(api) == [ids[2]]
    assert queue({"limits": None, "fair_by": None, "aging": None}).status_code == 200
    assert claim(api) == ids[3:5]
    assert queue(what="/limits").json() == {"limits": []}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"limits": [{"scope": "queue", "at_once": -1}]}, "a whole number from 1 to 1000000"),
        ({"limits": [{"scope": "queue", "at_once": 0}]}, "a whole number from 1 to 1000000"),
        ({"limits": [{"scope": "queue", "at_once": 10**30}]}, "a whole number from 1 to 1000000"),
        ({"limits": [{"scope": "tenant", "at_once": 1}]}, "queue, type, tag or key"),
        (
            {"limits": [{"scope": "queue", "at_once": 1}, {"scope": "queue", "at_once": 2}]},
            "two limits",
        ),
        ({"limits": [5]}, "limits[0]"),
        ({"limits": {"scope": "queue"}}, "limits"),
        ({"fair_by": "tenant:"}, "fair_by"),
        ({"fair_by": {"tag": ""}}, "fair_by"),
        ({"aging": -1}, "aging"),
        ({"max_snoozes": -1}, "max_snoozes"),
        ({"order": "oldest", "fair_by": {"tag": "tenant:"}}, "take no turns"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_in_one_sentence_and_changes_nothing(
    queue: Any, settings: dict[str, Any], said: str
) -> None:
    before = queue().json()
    refused = queue(settings)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert said.lower() in error.lower()
    assert error.count(". ") == 0
    assert queue().json() == before
