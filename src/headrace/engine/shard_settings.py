"""Settings of several shards: the same on all of them, but for the bounds of limits, which are
divided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from headrace.engine import namespaces, queues, shard_replies, tokens
from headrace.engine.arguments import moment
from headrace.engine.shard_routes import (
    Ask,
    Merge,
    Plan,
    Route,
    Use,
    absent,
    change_all,
    nothing,
    one,
)
from headrace.engine.shards import Fleet
from headrace.engine.statement import Statement, ask
from headrace.errors import InvalidInput
from headrace.model import Namespace, Queue


def with_limits(merge: Merge) -> Route:
    """A change of a queue on every shard. The bounds of its limits are divided among them."""

    def route(use: Use) -> Plan[Any]:
        arguments = use.arguments
        settings = arguments.get("settings", arguments)
        whole = settings.get("limits")
        if not whole:
            return (yield from change_all(use.fleet, use.at, merge))
        if use.fleet.absent:
            raise absent(use.fleet, "this is to be changed on all shards")
        parts = dict(zip(use.fleet.numbers, divided(whole, len(use.fleet.numbers)), strict=True))

        def ask(number: int) -> Ask:
            if settings is arguments:
                return use.at(number, limits=parts[number])
            return use.at(number, settings={**settings, "limits": parts[number]})

        return (yield from change_all(use.fleet, ask, merge))

    return route


def divided(limits: Any, count: int) -> list[Any]:
    """The limits of each of so many shards. A key has one home, and its limit is whole there; what
    the engine will refuse stays as it is."""
    if not isinstance(limits, list | tuple):
        return [limits] * count
    given = [one if isinstance(one, Mapping) else to_builtins(one) for one in limits]
    return [[_part(one, place, count) for one in given] for place in range(count)]


def _part(limit: Mapping[str, Any], place: int, count: int) -> Mapping[str, Any]:
    if limit.get("scope") == "key":
        return limit
    part = dict(limit)
    for name in ("at_once", "rate", "burst"):
        whole = limit.get(name)
        if not isinstance(whole, int) or isinstance(whole, bool) or whole < 1:
            continue
        if whole < count and name != "burst":
            raise InvalidInput(
                f"the limit has {name} {whole}, and it is divided among {count} shards: it must be "
                f"at least {count}"
            )
        part[name] = whole // count + (place < whole % count)
    return part


def token(use: Use) -> Plan[str]:
    """A token that is the same everywhere."""
    secret, arguments = tokens.new_secret(), use.arguments
    arguments["actor"] = arguments["actor"] or use.verbs.worker
    new = tokens.new_token(secret, **_without_self(arguments))

    def ask_to_create(number: int) -> Ask:
        return Ask(number, lambda verbs: ask(tokens.create_token(new)))

    yield from change_all(use.fleet, ask_to_create, nothing)
    return secret


def _without_self(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "self"}


_OF_NAMESPACES = ("unhandled", "unhandled_after", "metadata")
_OWN = {"name", "state", "depth", "filling", "created_at"}  # which are no settings
_OF_QUEUES = tuple(name for name in Queue.__struct_fields__ if name not in _OWN)


class _Settling:
    """Brings shards to the settings of the first of them, and divides the bounds of limits anew."""

    def __init__(self, fleet: Fleet, actor: str) -> None:
        self.fleet, self.actor = fleet, actor
        self.numbers = fleet.numbers
        self.model, *self.others = self.numbers
        self.done: list[str] = []

    def run(self) -> Plan[list[str]]:
        if self.fleet.absent:
            raise absent(self.fleet, "all shards are to be the same")
        spaces = yield from self._each(namespaces.namespaces())
        for space in spaces[self.model]:
            yield from self._settle_namespace(space, spaces)
            yield from self._settle_queues(space.name)
        yield from self._settle_tokens()
        return self.done

    def _each(self, statement: Statement[Any]) -> Plan[dict[int, Any]]:
        found = {}
        for number in self.numbers:
            found[number] = yield from self._at(number, statement)
        return found

    def _at(self, number: int, statement: Statement[Any]) -> Plan[Any]:
        return (yield from one(Ask(number, lambda verbs: ask(statement))))

    def _do(self, number: int, statement: Statement[Any], what: str) -> Plan[None]:
        yield from self._at(number, statement)
        self.done.append(f"shard {number}: {what}")

    def _settle_namespace(self, model: Namespace, spaces: dict[int, Any]) -> Plan[None]:
        for number in self.others:
            there = next((one for one in spaces[number] if one.name == model.name), None)
            if there is None:
                made = namespaces.create_namespace(model.name, actor=self.actor)
                yield from self._do(number, made, f"created the namespace {model.name}")
            wanted = {name: getattr(model, name) for name in _OF_NAMESPACES}
            if there is None or wanted != {name: getattr(there, name) for name in _OF_NAMESPACES}:
                wanted["unhandled_after"] = wanted["unhandled_after"].total_seconds()
                change = namespaces.change_namespace(model.name, wanted, self.actor)
                yield from self._do(number, change, f"changed the namespace {model.name}")

    def _settle_queues(self, space: str) -> Plan[None]:
        there = yield from self._each(queues.queues(space))
        by = {number: {one.name: one for one in found} for number, found in there.items()}
        for name, model in by[self.model].items():
            same = [found[name] for found in by.values() if name in found]
            limits = shard_replies.whole_limits(same)
            shares = divided(limits, len(self.numbers))
            for number, share in zip(self.numbers, shares, strict=True):
                wanted = {setting: getattr(model, setting) for setting in _OF_QUEUES}
                wanted["limits"] = share and list(share)
                yield from self._settle_queue(number, space, model, by[number].get(name), wanted)

    def _settle_queue(
        self, number: int, space: str, model: Queue, there: Queue | None, wanted: dict[str, Any]
    ) -> Plan[None]:
        name = model.name
        if there is None:
            types = None if model.types is None else list(model.types)
            tags = None if model.tags is None else list(model.tags)
            new = queues.NewQueue(name, types, tags, model.all_tags, {}, None, None, self.actor)
            made = queues.create_queue(space, new)
            yield from self._do(number, made, f"created the queue {space}/{name}")
        has = {setting: getattr(there, setting, None) for setting in _OF_QUEUES}
        has["limits"] = has["limits"] and to_builtins(list(has["limits"]))
        changed = {setting: value for setting, value in wanted.items() if value != has[setting]}
        if changed:
            change = queues.change_queue(space, name, _plain(changed), self.actor)
            yield from self._do(number, change, f"changed the queue {space}/{name}")
        if model.state != (there.state if there else "active"):
            states = {"active": queues.resume, "paused": queues.pause, "draining": queues.drain}
            change = states[model.state](space, name, self.actor)
            yield from self._do(number, change, f"the queue {space}/{name} is {model.state}")

    def _settle_tokens(self) -> Plan[None]:
        live = yield from self._each(tokens.live_tokens())
        listed = yield from self._each(tokens.tokens())
        known = {one.name: one for one in listed[self.model] if one.revoked_at is None}
        for digest, its in list(live[self.model].items()):
            made = known[its.name].created_at
            if any(
                one.name == its.name and one.revoked_at is not None and one.revoked_at >= made
                for number in self.others
                for one in listed[number]
            ):  # what is revoked on one shard is revoked
                del live[self.model][digest]
                yield from self._revoke(self.model, its.name)
        for number in self.others:
            for digest, its in live[number].items():
                if live[self.model].get(digest) != its:
                    yield from self._revoke(number, its.name)
            for digest, its in live[self.model].items():
                if live[number].get(digest) != its:
                    spaces = None if its.namespaces is None else sorted(its.namespaces)
                    end = known[its.name].expires_at
                    until = None if end is None else moment(end, "expires_at")
                    new = tokens.NewToken(
                        its.name, digest, sorted(its.scopes), spaces, until, self.actor
                    )
                    yield from self._do(
                        number, tokens.create_token(new), f"created the token {its.name}"
                    )

    def _revoke(self, number: int, name: str) -> Plan[None]:
        yield from self._do(
            number, tokens.revoke_token(name, self.actor), f"revoked the token {name}"
        )


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()
    }


def settle(fleet: Fleet, actor: str) -> Plan[list[str]]:
    """Bring all shards to the namespaces, queues and tokens of the first, and divide the bounds of
    limits among them; what was done."""
    return (yield from _Settling(fleet, actor).run())
