"""What must be true of the tables and of the workers' notes, whatever happened between them."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.database import Database

# The action that ended each claim, claim by claim. Two entries end none: a burial follows an end, and so does the status that a burial
# ends with. A late end has no lease: it follows the abandonment of its claim.
ENDS = """
select m.event, m.attempt, o.action, o.id, o.lease, extract(epoch from o.at)::float8
from headrace.outcomes o cross join lateral unnest(o.events, o.attempts) as m(event, attempt)
where o.picked_at is not null
order by m.event, m.attempt, o.id
"""
DEAD = """
select x.event, x.attempts, x.failures, x.crashes, coalesce(x.max_retries, q.max_retries), x.status
from headrace.dead_letters x join headrace.queues q on q.id = x.queue
"""


class End(NamedTuple):
    event: int
    attempt: int
    action: str
    id: int
    lease: int | None
    at: float

    @property
    def is_late(self) -> bool:
        return self.lease is None


class Notes:
    """What the workers were told, all of them together."""

    def __init__(self, folder: Path) -> None:
        self.published: list[int] = []
        self.claimed: list[tuple[int, int]] = []
        self.held_until: dict[int, float] = {}  # by lease
        self.ended: set[tuple[int, int, str]] = set()
        self.lost: set[tuple[int, int]] = set()
        self.effects: list[tuple[int, int]] = []
        for file in folder.iterdir():
            for note in self._lines(file):
                self._take(note)

    @staticmethod
    def _lines(file: Path) -> Iterator[list[Any]]:
        *whole, _cut_short = file.read_text().split("\n")
        return map(json.loads, whole)

    def _take(self, note: list[Any]) -> None:
        match note:
            case ["published", ids]:
                self.published += ids
            case ["claimed", lease, until, pairs]:
                self.claimed += map(tuple, pairs)
                self.held_until[lease] = max(until, self.held_until.get(lease, 0))
            case ["extended", lease, until]:
                self.held_until[lease] = max(until, self.held_until.get(lease, 0))
            case ["ended", ends]:
                self.ended |= set(map(tuple, ends))
            case ["lost", pairs]:
                self.lost |= set(map(tuple, pairs))
            case ["effect", event, attempt]:
                self.effects.append((event, attempt))


class Ledger:
    """A queue that has come to rest, and how it got there."""

    def __init__(self, db: Database, notes: Notes) -> None:
        self.db = db
        self.notes = notes
        self.events = {event for (event,) in db.sql("select id from headrace.events")}
        self.ends = [End(*row) for row in db.sql(ENDS)]
        self.by_claim = {(end.event, end.attempt): end for end in self.ends if not end.is_late}
        self.late = {(end.event, end.attempt): end for end in self.ends if end.is_late}
        self.trails: dict[int, list[End]] = defaultdict(list)
        for end in self.by_claim.values():
            self.trails[end.event].append(end)
        self.dead = {event: rest for event, *rest in db.sql(DEAD)}

    @property
    def abandoned(self) -> int:
        return sum(end.action == "ABANDONED" for end in self.ends)

    def __str__(self) -> str:
        return (
            f"{len(self.events)} events, {len(self.by_claim)} claims, {self.abandoned} abandoned,"
            f" {len(self.late)} ended late, {len(self.notes.lost)} lost, {len(self.dead)} dead, {len(self.notes.effects)} effects"
        )

    def check(self) -> None:
        self.nothing_is_lost()
        self.one_end_each()
        self.no_claim_twice()
        self.claims_follow_each_other()
        self.what_was_acknowledged_holds()
        self.no_lease_was_broken()
        self.charges_are_right()
        self.suspects_are_claimed_alone()
        self.effects_are_once()

    def nothing_is_lost(self) -> None:
        assert set(self.notes.published) <= self.events
        assert self.db.sql("select * from headrace.deliveries") == []
        assert self.db.sql("select * from headrace.leases") == []

    def one_end_each(self) -> None:
        placement = self.db.placement()
        assert placement.keys() == self.events
        wrong = {e: p for e, p in placement.items() if p not in (["outcome"], ["dead"])}
        assert not wrong
        assert self.dead.keys() == {
            event for event, place in placement.items() if place == ["dead"]
        }

    def no_claim_twice(self) -> None:
        twice = [pair for pair, times in Counter(self.notes.claimed).items() if times > 1]
        assert not twice, "handed out twice"
        ends = Counter((end.event, end.attempt, end.is_late) for end in self.ends)
        assert not [claim for claim, times in ends.items() if times > 1], "ended twice"
        in_time = [pair for pair in self.late if self.by_claim[pair].action != "ABANDONED"]
        assert not in_time, "ended in time, and late"
        assert set(self.notes.claimed) <= self.by_claim.keys(), "handed out and never ended"

    def claims_follow_each_other(self) -> None:
        """Attempts count from one, and each began after the one before had ended.

        Leases and ends are numbered on one line: a lease gets its number after its claim, an end
        before its commit.
        """
        for event in self.events:
            trail = self.trails[event]
            assert [end.attempt for end in trail] == list(range(1, len(trail) + 1)), trail
            line = [number for end in trail for number in self._line(end)]
            assert line == sorted(set(line)), trail
            actions = [self._last(end).action for end in trail]
            assert "COMPLETED" not in actions[:-1], trail
            if event in self.dead:
                assert actions[-1] in ("FAILED", "ABANDONED"), trail
            else:
                assert actions[-1] == "COMPLETED", trail

    def _line(self, end: End) -> list[int]:
        late = self.late.get((end.event, end.attempt))
        return [n for n in (end.lease, end.id, late and late.id) if n is not None]

    def _last(self, end: End) -> End:
        """A late end stands for the abandonment that it took back."""
        return self.late.get((end.event, end.attempt), end)

    def what_was_acknowledged_holds(self) -> None:
        for event, attempt, action in self.notes.ended:
            assert self._last(self.by_claim[event, attempt]).action == action
        for pair in self.notes.lost:
            assert self.by_claim[pair].action == "ABANDONED", self.by_claim[pair]

    def no_lease_was_broken(self) -> None:
        for end in self.ends:
            if end.action == "ABANDONED":
                assert end.at > self.notes.held_until.get(end.lease, 0), end

    def charges_are_right(self) -> None:
        """Every failure counts, and every crash but the first, which only makes a suspect."""
        for event, (attempts, failures, crashes, max_retries, status) in self.dead.items():
            trail = self.trails[event]
            assert attempts == len(trail)
            assert failures == [self._last(end).action for end in trail].count("FAILED")
            assert crashes == sum(
                suspect and self._crashed(end) for end, suspect in self._suspicions(trail)
            )
            assert failures + crashes == max(1, max_retries), "dead at the limit, not later"
            assert status == "FAILED"

    def suspects_are_claimed_alone(self) -> None:
        sizes = Counter(end.lease for end in self.by_claim.values())
        for trail in self.trails.values():
            for end, suspect in self._suspicions(trail):
                assert not suspect or sizes[end.lease] == 1, trail

    def _suspicions(self, trail: list[End]) -> Iterator[tuple[End, bool]]:
        """Each end, and whether its claim was a suspect's. A late end takes back the abandonment, and so its suspicion."""
        suspect = False
        for end in trail:
            yield end, suspect
            suspect = suspect or self._crashed(end)

    def _crashed(self, end: End) -> bool:
        return self._last(end).action == "ABANDONED"

    def effects_are_once(self) -> None:
        effects = self.db.sql("select event, attempt from headrace_test.effects")
        assert len({event for event, _ in effects}) == len(effects)
        assert set(self.notes.effects) <= set(effects)
        assert all(self._last(self.by_claim[pair]).action == "COMPLETED" for pair in effects)
