"""Reading events again: where somebody who does it is, and how long he waits when there is nothing to read yet."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from headrace.arguments import MAX_ID, moment, strings
from headrace.errors import InvalidInput
from headrace.model import Checkpoint, ReplayPage

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0  # seconds
PATIENCE = 5.0  # seconds until whoever waits for another's transaction says so

logger = logging.getLogger("headrace")


class Replay:
    """What is read, how far, and for how long to sleep now: `pause`, 0 when there may be more."""

    def __init__(
        self,
        from_checkpoint: Checkpoint | int | str | None,
        since: datetime | None,
        types: Sequence[str] | None,
    ) -> None:
        if from_checkpoint is not None and since is not None:
            raise InvalidInput("events are read again from a checkpoint or since a time, not both")
        self.after = _place(from_checkpoint)
        self.since = None if since is None else moment(since, "since")
        self.types = strings(types, "types")
        self.mark: str | None = None
        self.pause = 0.0
        self._waited = 0.0

    def read(self, page: ReplayPage) -> None:
        is_stuck = page.held_by is not None and not page.events
        self._waited = self._waited + self.pause if is_stuck else 0.0
        if self._waited - self.pause < PATIENCE <= self._waited:
            logger.warning("a replay waits: %s", page.held_by)
        if page.rewound_to is not None:
            logger.warning(
                "the database was promoted or restored: events after %s may be told again",
                page.rewound_to,
            )
        self.pause = min(max(2 * self.pause, FIRST_PAUSE), LONGEST_PAUSE) if is_stuck else 0.0
        self.after, self.mark = page.after, page.mark


def _place(checkpoint: Checkpoint | int | str | None) -> int:
    id = checkpoint.checkpoint_id if isinstance(checkpoint, Checkpoint) else checkpoint
    if id is None:
        return 0  # nothing was finished then
    try:
        place = int(id)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"a checkpoint is the id of an event, not {id!r}") from error
    if not 0 <= place <= MAX_ID:
        raise InvalidInput(f"a checkpoint is the id of an event, not {id!r}")
    return place
