"""Checks of several shards together: what must be the same on all of them, and the homes of keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.doctor.database import Database
from headrace.doctor.findings import CheckResult, fine, problem, warning
from headrace.engine.shards import SLOTS

_NAMESPACES = """
select n.name, concat_ws(', ', n.unhandled, n.unhandled_after, n.metadata) as settings
from headrace.namespaces n where n.name is not null
"""
# The bounds of limits are divided among the shards, so their numbers may differ.
_QUEUES = """
select q.space || '/' || q.name as name,
       (to_jsonb(q) - '{id,namespace,space,name,version,created_at,deleted_at,bound,limits}'::text[])::text
       || coalesce((select jsonb_agg(l.value - '{at_once,rate,burst}'::text[])::text
                    from jsonb_array_elements(q.limits) l), '') as settings
from headrace.queues q where q.space is not null
"""
_TOKENS = """
select t.name, md5(concat_ws(' ', encode(t.digest, 'hex'), t.scopes, t.namespaces, t.expires_at)) as settings
from headrace.api_tokens t where t.revoked_at is null
"""
_SLOTS = """
select s.slot, s.home, s.version, s.origin, h.shard from headrace.slots() s cross join headrace.shard() h
"""
SHOWN = 5
MEND = "headrace shards settle  -- with every --dsn: brings all shards to the settings of shard 0"
MOVE = "headrace shards spread  -- with every --dsn: goes on with what was cut off"

Shards = Mapping[str, Database]


def versions(shards: Shards) -> Iterator[CheckResult]:
    """The release of the schema."""
    found = {
        name: db.row("select major || '.' || minor as version from headrace.version()").version
        for name, db in shards.items()
    }
    if len(set(found.values())) > 1:
        said = ", ".join(f"{name}: {version}" for name, version in found.items())
        yield warning(f"the shards have schemas of different releases: {said}", "headrace migrate")
    else:
        yield fine(f"{len(found)} shards have the schema of one release")


def namespaces(shards: Shards) -> Iterator[CheckResult]:
    """The namespaces, and their settings."""
    yield from _same(shards, _NAMESPACES, "namespace")


def queue_settings(shards: Shards) -> Iterator[CheckResult]:
    """The queues, their settings and states."""
    yield from _same(shards, _QUEUES, "queue")


def tokens(shards: Shards) -> Iterator[CheckResult]:
    """The tokens of the HTTP API."""
    yield from _same(shards, _TOKENS, "token")


def _same(shards: Shards, sql: str, what: str) -> Iterator[CheckResult]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for shard, db in shards.items():
        for row in db.rows(sql):
            found[row.name][shard] = row.settings
    wrong = 0
    for name, told in sorted(found.items()):
        lacking = [shard for shard in shards if shard not in told]
        if not lacking and len(set(told.values())) == 1:
            continue
        wrong += 1
        if wrong > SHOWN:
            continue
        if lacking:
            yield problem(f"the {what} {name} is missing on {', '.join(lacking)}", MEND)
        else:
            usual = Counter(told.values()).most_common(1)[0][0]
            others = [shard for shard, value in told.items() if value != usual]
            yield problem(f"the {what} {name} has other settings on {', '.join(others)}", MEND)
    if wrong > SHOWN:
        yield problem(f"the same of {wrong - SHOWN} more", MEND)
    if not wrong:
        yield fine(f"the same {what}s on all shards")


def homes_of_keys(shards: Shards) -> Iterator[CheckResult]:
    """Every slot has one home."""
    known: dict[int, dict[int, Any]] = defaultdict(dict)
    numbers = set()
    for db in shards.values():
        numbers.add(db.row("select shard from headrace.shard()").shard)
        for row in db.rows(_SLOTS):
            known[row.slot][row.shard] = row
    owners = {
        slot: [number for number in sorted(numbers) if _owns(known[slot].get(number), number)]
        for slot in range(SLOTS)
    }
    none = [slot for slot, own in owners.items() if not own]
    several = [slot for slot, own in owners.items() if len(own) > 1]
    arriving = sum(row.origin is not None for told in known.values() for row in told.values())
    if several:
        yield problem(
            f"{len(several)} slots of keys have several homes, as slot {several[0]}: "
            f"shards {owners[several[0]]}",
            "restore the shard whose backup is older, and " + MOVE,
        )
    if none:
        yield problem(
            f"{len(none)} slots of keys have no home among these shards, as slot {none[0]}", MOVE
        )
    if arriving:
        yield warning(
            f"{arriving} slots are arriving: their events are held back until the home before has "
            "none left",
            MOVE,
        )
    if not (several or none or arriving):
        counts = Counter(own[0] for own in owners.values())
        said = ", ".join(f"shard {number}: {counts[number]}" for number in sorted(numbers))
        yield fine(f"every slot of keys has one home ({said})")


def _owns(row: Any, number: int) -> bool:
    """What a shard knows nothing of is shard 0's."""
    return number == 0 if row is None else row.home == number
