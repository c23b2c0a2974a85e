"""Readers of the log and of the events go through a promotion, and a crash, and are told all that was committed."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from tests.folders import short_folder
from tests.laboratory.house import House
from tests.laboratory.pair import Pair
from tests.requirements import requirement

WAL_WRITER = "select pid from pg_stat_activity where backend_type = 'walwriter'"
PUBLISH = """
select p.ids from headrace.publish('default', (select jsonb_agg('{}'::jsonb) from generate_series(1, %s))) p
"""


@pytest.fixture
def pair() -> Iterator[Pair]:
    with short_folder() as folder:
        pair = Pair(folder, synchronous=True)
        try:
            with unwritten(pair.first):
                yield pair
        finally:
            pair.close()


@pytest.fixture
def house() -> Iterator[House]:
    with short_folder() as folder:
        house = House(folder / "house")
        try:
            with unwritten(house):
                yield house
        finally:
            house.close()


@contextmanager
def unwritten(house: House) -> Iterator[None]:
    """What is merely drawn stays where a crash loses it: nothing but a commit writes the WAL to the disk."""
    for query in ("alter system set autovacuum = off", "select pg_reload_conf()"):
        house.sql(query)
    [(pid,)] = house.sql(WAL_WRITER)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def publish(house: House, count: int) -> list[int]:
    return house.sql(PUBLISH, count)[0][0]


def draw_in_vain(house: House) -> int:
    """Draw numbers that are nobody's in the end, and give the last of them."""
    with house.connect() as connection:
        connection.autocommit = False
        [(ids,)] = connection.execute(PUBLISH, [300]).fetchall()
        connection.rollback()
    return max(ids)


class Reader:
    """Reads to the end, and keeps what the last row says: `number` alone, or with the mark."""

    def __init__(self, function: str, *, number: bool = False) -> None:
        self.function, self.number = function, number
        self.after, self.mark, self.rewound = 0, None, False

    def read(self, house: House) -> set[int]:
        told: set[int] = set()
        with psycopg.connect(house.dsn, autocommit=True, row_factory=namedtuple_row) as connection:
            for _ in range(2):
                *rows, last = self._page(connection)
                told |= {row.event_id if self.function == "log_since" else row.id for row in rows}
                self.after = last.id
                self.mark = None if self.number else last.next_mark
                self.rewound = self.rewound or last.rewound_to is not None
        return told

    def _page(self, connection: psycopg.Connection[Any]) -> list[Any]:
        query = (
            f'select * from headrace.{self.function}(%s, after => %s, mark => %s, "limit" => 1000)'
        )
        if self.function == "replay" and self.mark:  # another one, from where the last has ended
            self.mark = self.mark.partition(" ")[2]
            self.mark = f"{2**50} {self.mark}"
        return connection.execute(query, ["default", self.after, self.mark]).fetchall()


def promote(pair: Pair) -> House:
    pair.first.stop(signal.SIGKILL)
    pair.second.sql("select pg_promote()")
    return pair.second


@requirement("G17", "G24")
def test_numbers_that_are_drawn_again_are_told(pair: Pair) -> None:
    """Those of a transaction that was rolled back never came to the standby, and it gives them to others."""
    readers = [Reader(name, number=number) for name in ("log_since", "replay") for number in (0, 1)]
    first = set(publish(pair.first, 5))
    assert [reader.read(pair.first) for reader in readers] == [first] * 4
    drawn = draw_in_vain(pair.first)
    assert [reader.read(pair.first) for reader in readers] == [set()] * 4
    second = promote(pair)
    again = set(publish(second, 20))
    assert min(again) <= drawn
    assert [reader.read(second) >= again for reader in readers] == [True] * 4


@requirement("G17", "G24")
def test_what_was_told_and_is_lost_does_not_hide_what_comes_instead(pair: Pair) -> None:
    """A commit that waited for no standby was told, and the standby numbers others like it."""
    first = set(publish(pair.first, 5))
    readers = [Reader("log_since"), Reader("replay")]
    assert [reader.read(pair.first) for reader in readers] == [first] * 2
    pair.first.sql("select from headrace.save_state('default')")  # by which cursors go
    pair.second.stop(signal.SIGINT)
    pair.first.sql("alter system set synchronous_commit = 'local'")
    pair.first.sql("select pg_reload_conf()")
    lost = set(publish(pair.first, 40))
    assert [reader.read(pair.first) for reader in readers] == [lost] * 2
    pair.first.stop(signal.SIGKILL)
    pair.second.start()
    pair.second.sql("select pg_promote()")
    instead = set(publish(pair.second, 40))
    assert instead & lost
    assert [reader.read(pair.second) for reader in readers] == [instead] * 2
    assert [reader.rewound for reader in readers] == [True] * 2
    [reader.read(pair.second) for reader in readers]
    assert publish(pair.second, 1)[0] in readers[0].read(pair.second)


@requirement("G17", "G24")
def test_a_crash_does_not_hide_what_comes_after_it(house: House) -> None:
    """The server is the same, and so is its timeline: what it had only drawn is drawn again."""
    readers = [Reader(name, number=number) for name in ("log_since", "replay") for number in (0, 1)]
    first = set(publish(house, 5))
    assert [reader.read(house) for reader in readers] == [first] * 4
    drawn = draw_in_vain(house)
    assert [reader.read(house) for reader in readers] == [set()] * 4
    house.stop(signal.SIGKILL)
    house.start()
    again = set(publish(house, 20))
    assert min(again) <= drawn
    assert [reader.read(house) for reader in readers] == [again] * 4
    assert not any(reader.rewound for reader in readers)
