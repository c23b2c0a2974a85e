"""What has become of every event: from the ledgers, which are outside the database, and from what is in it."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.laboratory.house import House

EVENTS = "select id, payload ->> 'key', type from headrace.events"
ENDS = """
select m.event, m.attempt, o.action, extract(epoch from o.at)::float8, o.lease is not null,
       o.lease is null and o.picked_at is not null
from headrace.outcomes o cross join lateral unnest(o.events, o.attempts) as m(event, attempt)
order by m.event, o.id
"""
LOGGED = "select event_id, action, count(*) from headrace.event_log group by 1, 2"
TERMINAL = frozenset(
    {"COMPLETED", "COMPLETED_WITH_ERRORS", "CANCELLED", "SUPERSEDED", "DEAD_LETTERED"}
)
MOST_STARTS_OF_POISON = 4  # three tries, and the one that made it a suspect
LONGEST_CALL = 60.0  # seconds until who asks knows, or knows that it is not known
LATE = ("too late to end", "leases were lost, so nothing was committed", "a lease was lost")


class End(NamedTuple):
    event: int
    attempt: int
    action: str
    at: float
    ends_a_claim: bool
    is_late: bool  # it took back the abandonment of its claim


class Start(NamedTuple):
    kind: str
    event: int
    attempt: int
    at: float


@dataclass
class Accounts:
    """`wrong` must be empty: what should not be, and examples of it. `figures` are reported."""

    wrong: dict[str, list[Any]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def must_not_be(self, name: str, which: Any) -> None:
        if those := sorted(which, key=str):
            self.wrong[f"{len(those)} {name}"] = those[:5]


class Publishers:
    """What they were told, all of them together."""

    def __init__(self, files: list[Path], killed: set[str]) -> None:
        self.intents: dict[str, str] = {}
        self.ok: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.absent: set[str] = set()
        self.unknown = 0
        self.forked = 0
        self.cancelled = 0
        self.longest = 0.0
        self._of_the_killed: set[str] = set()
        for file in files:
            for line in lines(file):
                self._take(line)
                if line[0] == "intent" and file.stem in killed:
                    self._of_the_killed.add(line[1])

    def _take(self, line: list[Any]) -> None:
        match line:
            case ["intent", key, kind]:
                self.intents[key] = kind
            case ["ok", key, event, took, *_]:
                self.ok[key] = event
                self.longest = max(self.longest, took)
            case ["unknown", _, _, took, *_]:
                self.unknown += 1
                self.longest = max(self.longest, took)
            case ["refused", key, error]:
                self.refused[key] = error
            case ["absent", key]:
                self.absent.add(key)
            case ["forked", _]:
                self.forked += 1
            case ["cancelled", times]:
                self.cancelled += times

    @property
    def undecided(self) -> set[str]:
        """Of those who were not killed, who must know what has become of everything."""
        decided = self.ok.keys() | self.refused.keys() | self.absent
        return self.intents.keys() - decided - self._of_the_killed


def account(
    house: House, folder: Path, killed: set[str], longest_call: float = LONGEST_CALL
) -> Accounts:
    """Of what is in a folder, and in the database; `killed` are the names of the publishers that were."""
    accounts = Accounts()
    told = Publishers(sorted(folder.glob("*.ledger")), killed)
    starts = [start for file in folder.glob("*.notes") for start in starts_of(file)]
    events = {id: (key, kind) for id, key, kind in house.sql(EVENTS)}
    ends = [End(*row) for row in house.sql(ENDS)]
    _of_publishing(accounts, told, events, house)
    _of_ends(accounts, events, ends)
    _of_effects(accounts, events, ends, house)
    _of_starts(accounts, events, ends, starts)
    _of_the_log(accounts, events, ends, house)
    completed = sum(end.action == "COMPLETED" for end in ends)
    accounts.figures = {
        "published": len(events),
        "completed": completed,
        "dead-lettered": sum(end.action == "DEAD_LETTERED" for end in ends),
        "publishes of which nobody knew": told.unknown,
        "attempts": sum(end.ends_a_claim for end in ends),
        "redelivered": len({e.event for e in ends if e.ends_a_claim and e.attempt > 1}),
        "abandoned": sum(end.action == "ABANDONED" for end in ends),
        "released": sum(end.action == "RELEASED" for end in ends),
        "late finishes counted": sum(end.is_late for end in ends),
        "late finishes refused": sum(said(file, LATE) for file in folder.glob("*.log")),
        "longest blocked call, s": round(told.longest, 2),
    }
    if told.forked:
        accounts.figures["publishers forked"] = told.forked
    if told.cancelled:
        accounts.figures["calls cancelled"] = told.cancelled
    accounts.must_not_be(
        "calls that were blocked for too long",
        [told.longest] if told.longest > longest_call else [],
    )
    return accounts


def _of_publishing(
    accounts: Accounts, told: Publishers, events: dict[int, tuple[str, str]], house: House
) -> None:
    times = Counter(key for key, _ in events.values())
    accounts.must_not_be("lost", told.ok.keys() - times.keys())
    accounts.must_not_be("ghosts", times.keys() - told.intents.keys())
    accounts.must_not_be("absent and there", told.absent & times.keys())
    accounts.must_not_be("refused and there", told.refused.keys() & times.keys())
    accounts.must_not_be("refused", told.refused.items())
    accounts.must_not_be("undecided", told.undecided)
    accounts.must_not_be("events of one key", (key for key, n in times.items() if n > 1))
    named = ((key, id) for key, id in told.ok.items() if id != -1)
    accounts.must_not_be(
        "known by another id", ((k, id) for k, id in named if events.get(id, ("",))[0] != k)
    )
    rows = Counter(key for (key,) in house.sql("select key from orders"))
    outbox = {key for key, kind in told.intents.items() if kind == "outbox"}
    accounts.must_not_be(
        "rows without their event, or the other way",
        (key for key in outbox if rows[key] != times[key]),
    )


def _of_ends(accounts: Accounts, events: dict[int, tuple[str, str]], ends: list[End]) -> None:
    terminal = Counter(end.event for end in ends if end.action in TERMINAL)
    accounts.must_not_be(
        "events with other than one end",
        ((id, events[id], terminal[id]) for id in events if terminal[id] != 1),
    )
    claims = Counter((end.event, end.attempt) for end in ends if end.ends_a_claim)
    accounts.must_not_be("attempts with two ends", (pair for pair, n in claims.items() if n > 1))
    late = Counter((end.event, end.attempt) for end in ends if end.is_late)
    accounts.must_not_be("attempts with two late ends", (pair for pair, n in late.items() if n > 1))
    abandoned = {(end.event, end.attempt) for end in ends if end.action == "ABANDONED"}
    accounts.must_not_be("late ends of what was not abandoned", late.keys() - abandoned)
    numbers = defaultdict(list)
    for end in ends:
        if end.ends_a_claim:
            numbers[end.event].append(end.attempt)
    accounts.must_not_be(
        "gaps among attempts",
        ((id, n) for id, n in numbers.items() if n != list(range(1, len(n) + 1))),
    )
    dead = {end.event for end in ends if end.action == "DEAD_LETTERED"}
    accounts.must_not_be(
        "innocents among the dead", (id for id in dead if events[id][1] != "poison")
    )


def _of_effects(
    accounts: Accounts, events: dict[int, tuple[str, str]], ends: list[End], house: House
) -> None:
    effects = Counter(event for (event,) in house.sql("select event from effects"))
    due = {
        end.event
        for end in ends
        if end.action == "COMPLETED" and events[end.event][1] in ("effect", "retried", "hanging")
    }
    accounts.must_not_be("doubled effects", (id for id, n in effects.items() if n > 1))
    accounts.must_not_be("missing effects", due - effects.keys())
    accounts.must_not_be("orphaned effects", effects.keys() - due)


def _of_starts(
    accounts: Accounts, events: dict[int, tuple[str, str]], ends: list[End], starts: list[Start]
) -> None:
    times = Counter((start.event, start.attempt) for start in starts)
    accounts.must_not_be("attempts begun twice", (pair for pair, n in times.items() if n > 1))
    claimed = {(end.event, end.attempt) for end in ends if end.ends_a_claim}
    accounts.must_not_be("begun without a claim", times.keys() - claimed)
    released = {(end.event, end.attempt) for end in ends if end.action == "RELEASED"}  # uncounted
    poisoned = Counter(
        start.event
        for start in starts
        if start.kind == "poison" and (start.event, start.attempt) not in released
    )
    accounts.must_not_be(
        "poison begun too often",
        ((id, n) for id, n in poisoned.items() if n > MOST_STARTS_OF_POISON),
    )
    begun = {start.event for start in starts}
    done = {end.event for end in ends if end.action == "COMPLETED"}
    accounts.must_not_be("completed and never begun", done - begun)


def _of_the_log(
    accounts: Accounts, events: dict[int, tuple[str, str]], ends: list[End], house: House
) -> None:
    logged: Counter[tuple[int, str]] = Counter(
        {(event, action): count for event, action, count in house.sql(LOGGED)}
    )
    meant = Counter((end.event, end.action) for end in ends)
    meant.update((id, "EMITTED") for id in events)
    meant.update((end.event, "PICKED") for end in ends if end.ends_a_claim)
    wrong = {pair for pair in logged.keys() | meant.keys() if logged[pair] != meant[pair]}
    accounts.must_not_be("entries of the log that do not match", wrong)


def starts_of(file: Path) -> list[Start]:
    return [Start(*line[1:]) for line in lines(file)]


def lines(file: Path) -> Iterator[Any]:
    """The last one may have been cut short by a kill."""
    *whole, _ = file.read_text().split("\n") if file.exists() else [""]
    return map(json.loads, whole)


def said(file: Path, words: tuple[str, ...]) -> int:
    """The lines of a log that say one of these."""
    if not file.exists():
        return 0
    return sum(any(word in line for word in words) for line in file.read_text().splitlines())
