"""Two shards as two databases, and a slot that moves between them step by step."""

from collections.abc import Callable
from typing import Any

from psycopg.types.json import Jsonb

from headrace.engine.shards import slot_of
from tests.database import Database
from tests.engine.races_helpers import Session


class Shard(Session):
    """A session on a shard."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.db = db

    def publish_event(self, *, asked: bool = False, **event: Any) -> int:
        [(ids,)] = self.sql(
            "select ids from headrace.publish('default', %s, asked => %s)", [Jsonb(event), asked]
        )
        return ids[0]

    def give(self, slots: list[int], to: int) -> Any:
        [(given,)] = self.sql("select headrace.give_slots(%s, %s)", [slots, to])
        return given

    def accept(self, giver: int, given: Any) -> int:
        [(accepted,)] = self.sql("select headrace.accept_slots(%s, %s)", [giver, Jsonb(given)])
        return accepted

    def left(self, slots: list[int], known: list[str] | None = None) -> Any:
        [row] = self.sql("select * from headrace.slots_left(%s, %s)", [slots, known])
        return row

    def open(self, slots: list[int], known: list[str] | None = None, **more: Any) -> Any:
        [(waits_for,)] = self.sql(
            "select headrace.open_slots(%s, %s, %s)", [slots, known, more.get("asks", True)]
        )
        return waits_for

    def open_to_the_end(self, slots: list[int]) -> None:
        assert self.open(slots) is None
        assert self.open(slots) == []


def slot(key: str) -> list[int]:
    return [slot_of("default", key)]


def keys_of(slots: Callable[[int], bool], count: int) -> list[str]:
    """Keys whose slots are such."""
    found = (f"k{n}" for n in range(100_000) if slots(slot_of("default", f"k{n}")))
    return [next(found) for _ in range(count)]
