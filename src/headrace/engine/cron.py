"""When a schedule fires: cron expressions, time zones and the two nights a year when clocks change.

The engine knows instants and no calendar, so the instants are computed here and stored ahead:
see plan_task.

An expression is matched against local time. With named hours ("0 2 * * *") it fires once for
every time that it names: a time that a clock change skips fires at the change, and a time that
it repeats fires the first time. With a wildcard for hours ("*/15 * * * *") it fires whenever the
local time matches: not for skipped times, and again for repeated ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from headrace.errors import HeadraceError, InvalidInput
from headrace.model import ScheduledTask

if TYPE_CHECKING:
    from cronsim import CronSim

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# The number of instants stored ahead: those of a day, within these bounds; of a year, for tasks
# planned far ahead.
FEWEST, MOST = 20, 200
HORIZON = timedelta(days=1)
MOST_FAR = 1000  # the most that plan_task takes per call
FAR_HORIZON = timedelta(days=366)
# A fire that is later than this was missed; the engine has the same number.
GRACE = timedelta(minutes=1)
MOST_MISSED = 100

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class Unplanned(NamedTuple):
    """A task, and what must be known to work out its next instants."""

    task: ScheduledTask
    version: int
    planned_until: datetime
    at: datetime
    """The database's time when it answered."""
    far: bool = False
    """As many instants as may be are wanted."""


def plan(unplanned: Unplanned) -> list[datetime]:
    """The next instants of a task that has too few, after those that were not planned in time."""
    task, since, now = unplanned.task, unplanned.planned_until, unplanned.at
    schedule = Schedule(task.cron_expression, task.timezone)
    fires: list[datetime] = []
    if since < now:
        fires = _missed(schedule, task.missed, since, now)
    most, horizon = (MOST_FAR, FAR_HORIZON) if unplanned.far else (MOST, HORIZON)
    for fire in schedule.after(max(since, now)):
        if len(fires) >= most or (len(fires) >= FEWEST and fire > now + horizon):
            break
        fires.append(fire)
    return fires


def _missed(schedule: Schedule, policy: str, since: datetime, now: datetime) -> list[datetime]:
    """Missed instants, also those that the policy drops: the engine knows why they are late, and
    logs them."""
    is_one_enough = policy == "coalesce" and since < now - GRACE
    return schedule.latest(1 if is_one_enough else MOST_MISSED, since, now)


class Schedule:
    """A cron expression in a time zone."""

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self._zone = _zone(timezone)
        self._expression = NICKNAMES.get(expression, expression)
        walls = _walls(self._expression, datetime(2000, 1, 1))  # noqa: DTZ001 - local time
        if next(walls, None) is None:
            raise InvalidInput(f"the cron expression {expression!r} never fires")
        self._hours_are_wild = walls.parts[2].startswith("*") or len(walls.hours) == 24

    def after(self, instant: datetime) -> Iterator[datetime]:
        """The instants after this one at which the schedule fires, in UTC."""
        instant = instant.astimezone(UTC).replace(microsecond=0)
        return self._whenever(instant) if self._hours_are_wild else self._once(instant)

    def latest(self, most: int, since: datetime, until: datetime) -> list[datetime]:
        """The last `most` instants after `since` and not after `until`, in order."""
        reach = GRACE
        while True:
            begin = max(since, until - reach)
            last = deque(takewhile(lambda fire: fire <= until, self.after(begin)), most)
            if len(last) == most or begin == since:
                return list(last)
            reach *= 8  # searching from the beginning may take long

    def _once(self, instant: datetime) -> Iterator[datetime]:
        """Once for every local time that matches."""
        for wall in _walls(self._expression, _wall(instant, self._zone)):
            fire = _first_shown(wall, self._zone)
            if fire > instant:  # skip a repeated time, and one skipped together with the one before
                yield fire
                instant = fire

    def _whenever(self, instant: datetime) -> Iterator[datetime]:
        """Whenever the local time matches, one stretch of constant offset after the other."""
        begin = _wall(instant, self._zone)
        while True:
            offset = _offset(instant, self._zone)
            change = None
            for wall in _walls(self._expression, begin):
                fire = (wall - offset).replace(tzinfo=UTC)
                change = _change(instant, fire, self._zone)
                if change is not None:
                    break
                yield fire
                instant = fire
            if change is None:
                return
            instant = change
            begin = _wall(change, self._zone) - _SECOND


def _walls(expression: str, after: datetime) -> CronSim:
    """The local times that match, regardless of clock changes."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise HeadraceError(
            "schedules need the package cronsim: pip install 'headrace[schedules]'"
        ) from error
    try:
        return CronSim(expression, after)
    except (CronSimError, AssertionError, AttributeError, TypeError, ValueError) as error:
        raise InvalidInput(f"{expression!r} is not a cron expression: {error}") from error


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"unknown time zone {name!r}") from error


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    return _wall(instant, zone) - instant.replace(tzinfo=None)


def _first_shown(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant with this local time, or of the clock change that skips it."""
    shown = wall.replace(tzinfo=zone).astimezone(UTC)
    if _wall(shown, zone) == wall:
        return shown
    before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _change(before, shown, zone) or shown


def _change(after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
    """The first clock change after `after` and not after `until`; None: there is none."""
    offset = _offset(after, zone)
    while after < until:
        probe = min(after + _DAY, until)
        if _offset(probe, zone) != offset:
            return _pinpointed(after, probe, zone)
        after = probe
    return None


def _pinpointed(before: datetime, changed: datetime, zone: ZoneInfo) -> datetime:
    offset = _offset(before, zone)
    while (seconds := (changed - before) // _SECOND) > 1:
        middle = before + seconds // 2 * _SECOND
        if _offset(middle, zone) == offset:
            before = middle
        else:
            changed = middle
    return changed
