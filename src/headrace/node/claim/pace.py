"""How soon a lane claims again: events that flow in one by one are gathered for a moment."""

BUSY = 3  # claims in a row that found events
FEW = 32  # events: so many share the costs of their claim well enough
GATHER = 0.003  # seconds from such a claim to the next


class Pace:
    """A claim, its lease and its end cost PostgreSQL as much for one event as for a dozen. A lane
    that claims as often as it can takes a steady flow apart into single events. So while each
    claim finds a few events, and then no more are left, the next one comes a moment later. The
    first claims after a quiet time are not delayed, nor is a claim of a backlog."""

    def __init__(self) -> None:
        self._finds = 0
        self._rests_until = 0.0

    @property
    def is_busy(self) -> bool:
        """Events come all the time: the lane needs no wake-up."""
        return self._finds >= BUSY

    def found(self, count: int, wanted: int, now: float) -> None:
        self._finds += 1
        if self.is_busy and count < min(wanted, FEW):
            self._rests_until = now + GATHER

    def found_nothing(self) -> None:
        self._finds = 0

    def pause(self, now: float) -> float:
        """Seconds before the next claim."""
        return max(0.0, self._rests_until - now)
