"""How a verb finds its shards: each verb in driver/borrow.py names one of these routes.

A route is a generator without I/O, as a call is: it yields what to ask of which shards, is sent
their replies, and returns what the caller gets. A number is so many seconds to wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

from headrace.engine.arguments import is_id, seconds, strings
from headrace.engine.caller import Connection
from headrace.engine.shards import Fleet
from headrace.engine.verbs import Verbs, signature_of
from headrace.errors import InvalidInput, NotFinished, NotFound, NotStored, Unavailable
from headrace.model import Claimed

T = TypeVar("T")
Verb: TypeAlias = Callable[..., Any]


class Ask(NamedTuple):
    """A call of one shard."""

    shard: int
    call: Callable[[Verbs], Any]
    connection: Connection | None = None
    waits: bool = False
    """It is a call that waits: see Turns."""


class Reply(NamedTuple):
    shard: int
    value: Any
    error: Exception | None = None


Plan: TypeAlias = Generator[list[Ask] | float, list[Reply], T]
Merge: TypeAlias = Callable[["Gathered"], Any]


class Use(NamedTuple):
    """A use of a verb over several shards."""

    fleet: Fleet
    verbs: Verbs
    """Of the client: its names, its worker."""
    verb: Verb
    given: tuple[Any, ...]
    named: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        parameters = _parameters(self.verb)
        positional = dict(zip(parameters.positional, self.given, strict=False))
        if len(positional) == len(self.given) and positional.keys().isdisjoint(self.named):
            found = {**parameters.defaults, **positional, **self.named}
            if found.keys() == parameters.names:
                return {"self": self.verbs, **found}
        bound = signature_of(self.verb).bind(self.verbs, *self.given, **self.named)
        bound.apply_defaults()
        return bound.arguments

    def at(self, shard: int, **changed: Any) -> Ask:
        """The same use on one shard, with some arguments changed."""
        if not changed:
            connection = self.named.get("connection")
            return Ask(shard, lambda verbs: self.verb(verbs, *self.given, **self.named), connection)
        arguments = {**self.arguments, **changed}
        arguments.pop("self")
        named = arguments.pop("settings", {})
        return Ask(
            shard, lambda verbs: self.verb(verbs, **arguments, **named), arguments.get("connection")
        )


Route: TypeAlias = Callable[[Use], Plan[Any]]


class _Parameters(NamedTuple):
    """Of a verb, to bind most calls in a fraction of the time that its signature takes."""

    positional: tuple[str, ...]
    defaults: dict[str, Any]
    names: frozenset[str]


@lru_cache(None)
def _parameters(verb: Verb) -> _Parameters:
    given = list(signature_of(verb).parameters.values())[1:]
    if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in given):
        return _Parameters((), {}, frozenset({"*"}))  # which no call has
    return _Parameters(
        tuple(one.name for one in given if one.kind is one.POSITIONAL_OR_KEYWORD),
        {one.name: one.default for one in given if one.default is not one.empty},
        frozenset(one.name for one in given),
    )


class Gathered(NamedTuple):
    """The answers of the shards, and the names of those that did not answer."""

    values: dict[int, Any]
    missing: tuple[str, ...] = ()

    @property
    def first(self) -> Any:
        return next(iter(self.values.values()))

    @property
    def all(self) -> list[Any]:
        return list(self.values.values())


def one(ask: Ask) -> Plan[Any]:
    """The answer of one shard, or its error."""
    [reply] = yield [ask]
    if reply.error is not None:
        raise reply.error
    return reply.value


def gather(fleet: Fleet, ask: Callable[[int], Ask]) -> Plan[Gathered]:
    """The answers of all shards that can be reached. NotFound only if every one of them says so."""
    up = fleet.up
    replies = yield [ask(number) for number in up]
    errors = {reply.shard: reply.error for reply in replies if reply.error is not None}
    values = {reply.shard: reply.value for reply in replies if reply.error is None}
    for error in errors.values():
        if not isinstance(error, Unavailable | NotFound) or not values:
            raise error
    lost = [number for number, error in errors.items() if isinstance(error, Unavailable)]
    missing = [*map(fleet.name, sorted({*fleet.numbers} - {*up} | {*lost})), *fleet.absent]
    return Gathered(values, tuple(missing))


def nothing(found: Gathered) -> None:
    return None


def first_that_answers(
    fleet: Fleet, ask: Callable[[int], Ask], *, is_read: bool = False
) -> Plan[Any]:
    """Only an error that says that nothing was stored lets the next shard try; of what only reads,
    any that says that a shard does not answer."""
    failed: Exception | None = None
    lets = Unavailable if is_read else NotStored
    for number in fleet.in_turn():
        [reply] = yield [ask(number)]
        if not isinstance(reply.error, lets):
            if reply.error is not None:
                raise reply.error
            return reply.value
        failed = reply.error
    assert failed is not None
    raise failed


def by_id(use: Use) -> Plan[Any]:
    """The shard of the event that the first argument names."""
    id, fleet = use.arguments["id"], use.fleet
    try:
        return (yield from one(use.at(shard_of_id(fleet, id))))
    except NotFound:
        if 0 not in fleet.shards and fleet.absent:  # it may be one from before there were shards
            raise absent(fleet, f"event {id} may be there") from None
        raise


def shard_of_id(fleet: Fleet, id: int) -> int:
    """An id that cannot be is any shard's to refuse. NotStored: its shard has not answered yet."""
    owner = fleet.owner(id) if is_id(id) else fleet.numbers[0]
    if owner is None:
        if fleet.absent:
            raise absent(fleet, f"event {id} may be there")
        return fleet.numbers[0]
    return owner


def absent(fleet: Fleet, why: str) -> NotStored:
    return NotStored(f"no answer from {', '.join(fleet.absent)}, and {why}: nothing was changed")


def by_ids(merge: Merge) -> Route:
    """The shards of the events that are named, a part for each."""

    def route(use: Use) -> Plan[Any]:
        parts = by_owner(use.fleet, use.arguments["ids"], lambda id: id)
        replies = yield [use.at(number, ids=ids) for number, (_, ids) in parts.items()]
        _raise_any(replies)
        return merge(Gathered({reply.shard: reply.value for reply in replies}))

    return route


def by_owner(
    fleet: Fleet, items: Iterable[T], id_of: Callable[[T], int]
) -> dict[int, tuple[list[int], list[T]]]:
    """Things with ids by their shard: their positions, and they themselves."""
    parts: dict[int, tuple[list[int], list[T]]] = defaultdict(lambda: ([], []))
    for position, item in enumerate(items):
        positions, part = parts[shard_of_id(fleet, id_of(item))]
        positions.append(position)
        part.append(item)
    return parts


def _raise_any(replies: Sequence[Reply]) -> None:
    failed = [reply for reply in replies if reply.error is not None]
    if not failed:
        return
    error = min(failed, key=lambda reply: isinstance(reply.error, NotFinished)).error
    assert error is not None
    if isinstance(error, NotFinished):
        error.ids = tuple(
            id for one in failed if isinstance(one.error, NotFinished) for id in one.error.ids
        )
    elif len(failed) < len(replies):
        done = ", ".join(str(reply.shard) for reply in replies if reply.error is None)
        error.add_note(f"it was done on shard {done}; the call can be repeated")
    raise error


def by_claim(use: Use) -> Plan[Any]:
    """The shard that made the claim; of several claims, each to its shard. All parts are tried."""
    [claimed] = [value for name, value in use.arguments.items() if name in _CLAIMS]
    several = isinstance(claimed, Sequence)
    ids = [
        one.id if type(one) is Claimed else _id_of(one)
        for one in (claimed if several else (claimed,))
    ]
    owners = _owners(use.fleet, ids)
    if len(owners) <= 1:
        return (yield from one(use.at(*owners or use.fleet.numbers[:1])))
    name = next(name for name in use.arguments if name in _CLAIMS)
    parts = by_owner(use.fleet, claimed, _id_of)
    replies = yield [use.at(number, **{name: part}) for number, (_, part) in parts.items()]
    _raise_any(replies)
    if replies[0].value is None:
        return None
    answers = [None] * len(claimed)
    for reply in replies:
        for position, answer in zip(parts[reply.shard][0], reply.value, strict=True):
            answers[position] = answer
    return answers


def _owners(fleet: Fleet, ids: Sequence[int]) -> set[int]:
    """The shards of claims: mostly one, of which all of them came."""
    if all(map(is_id, ids)) and (found := fleet.owners(ids)) <= fleet.shards.keys():
        return found
    return {shard_of_id(fleet, id) for id in ids}


_CLAIMS = ("claimed", "claimed_or_id", "results")


def _id_of(claim: Any) -> int:
    found = getattr(claim, "claimed", claim)  # of a result
    id: int = getattr(found, "id", found)
    return id


def everywhere(merge: Merge) -> Route:
    """All shards that answer; how their replies are merged is given. What is missing is said."""

    def route(use: Use) -> Plan[Any]:
        return merge((yield from gather(use.fleet, use.at)))

    return route


def to_all(merge: Merge) -> Route:
    """A change of every shard. It is refused while one does not answer; a call that fails half-way
    can be repeated."""

    def route(use: Use) -> Plan[Any]:
        return (yield from change_all(use.fleet, use.at, merge))

    return route


def change_all(fleet: Fleet, ask: Callable[[int], Ask], merge: Merge) -> Plan[Any]:
    if fleet.absent:
        raise absent(fleet, "this is to be changed on all shards")
    replies = yield [ask(number) for number in fleet.numbers]
    values = {reply.shard: reply.value for reply in replies if reply.error is None}
    if values:  # where some had it, and others not, it is as it should be now
        replies = [reply for reply in replies if not isinstance(reply.error, NotFound)]
    _raise_any(replies)
    return merge(Gathered(values))


def by_filter(use: Use) -> Plan[int]:
    """Steps over many deliveries: the shards of those that are named, or else all; one rate and one
    progress for all of them."""
    fleet, arguments = use.fleet, use.arguments
    progress, counts = arguments["progress"], dict.fromkeys(fleet.numbers, 0)
    changed: dict[str, Any] = {}
    if arguments.get("rate") is not None:
        changed["rate"] = arguments["rate"] / max(len(fleet.numbers), 1)

    def told(number: int) -> Callable[[int], None]:
        def tell(done: int) -> None:
            if done != counts[number]:
                counts[number] = done
                progress(sum(counts.values()))

        return tell

    def ask(number: int) -> Ask:
        telling = {"progress": told(number)} if progress else {"progress": None}
        mine = {"ids": parts[number][1]} if arguments["ids"] is not None else {}
        return use.at(number, **telling, **mine, **changed)

    if arguments["ids"] is not None:
        parts = by_owner(fleet, arguments["ids"], lambda id: id)
        replies = yield [ask(number) for number in parts]
    else:
        if fleet.absent:
            raise absent(fleet, "this is to be done on all shards")
        replies = yield [ask(number) for number in fleet.numbers]
    _raise_any(replies)
    return sum(reply.value for reply in replies)


def in_turn(use: Use) -> Plan[Any]:
    """Claims: the shards take turns, and the next ones fill up what the first has not."""
    fleet, wanted = use.fleet, use.arguments.get("max_events")
    claimed: list[Any] = []
    failed: Exception | None = None
    answered = False
    for number in fleet.in_turn():
        left = {"max_events": wanted - len(claimed)} if wanted is not None and claimed else {}
        [reply] = yield [use.at(number, **left)]
        if isinstance(reply.error, Unavailable):
            failed = failed or reply.error
            continue
        if reply.error is not None:
            if claimed:
                break
            raise reply.error
        answered = True
        if wanted is None:
            if reply.value is not None:
                return reply.value
            continue
        claimed += reply.value
        if len(claimed) >= wanted:
            break
    if failed is not None and not answered:
        raise failed
    return None if wanted is None else claimed


def by_schedule(use: Use) -> Plan[Any]:
    """The shard that has the schedule; a new one goes to the home of its name and stays there."""
    fleet, arguments = use.fleet, use.arguments
    name = arguments["name"]
    if arguments.get("key") is not None:
        raise InvalidInput(
            "a schedule of several shards has no ordering key: its shard need not be the key's home"
        )
    found: Gathered = yield from gather(
        fleet, lambda number: Ask(number, lambda verbs: verbs.schedules())
    )
    for number, tasks in found.values.items():
        if any(task.name == name for task in tasks):
            return (yield from one(use.at(number)))
    if found.missing:
        raise NotStored(
            f"no answer from {', '.join(found.missing)}, which may have the schedule {name!r}: "
            "nothing was changed"
        )
    strings([name], "the name of a schedule")
    home = fleet.homes.of(use.verbs.namespace, name).home
    return (yield from one(use.at(home if home in fleet.shards else fleet.numbers[0])))


def at_home(use: Use) -> Plan[int]:
    """What is known of the home of a key; no shard is asked."""
    yield from ()
    return use.fleet.homes.of(use.verbs.namespace, use.arguments["key"]).home


def with_capacity(use: Use) -> Plan[bool]:
    """Every shard must have room: what is published next may go to any."""
    deadline = use.verbs.memory.clock() + seconds(use.arguments["timeout"], "timeout")
    for number in use.fleet.up:
        left = max(deadline - use.verbs.memory.clock(), 0.001)
        if not (yield from one(use.at(number, timeout=left)._replace(waits=True))):
            return False
    return True
