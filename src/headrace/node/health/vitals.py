"""The vitals of a node at a moment, as its health port shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.telemetry.prometheus import Family, Sample, histogram


@dataclass(frozen=True, slots=True)
class Vitals:
    """Figures since the node's start, and of now."""

    node: str
    namespace: str
    queue: str
    trouble: str | None
    """Why it claims nothing at the moment; None: it does."""
    ended: Mapping[tuple[str, str], int]
    """Attempts, by type of event and how they ended."""
    run_times: Mapping[float, int]
    """Attempts, by the upper bound of their run time in seconds; infinity: above the last bound."""
    run_time: float
    """Of all of them, in seconds."""
    running: int
    buffered: int
    leases: int
    abandoned: int = 0
    """Handlers that did not end after their timeouts, and still run."""
    without: Mapping[str, str] = field(default_factory=dict)
    """Of several shards, those for which it claims nothing at the moment, and why."""
    shards: Mapping[str, bool] = field(default_factory=dict)
    """Of several shards, by number, whether it claims from them."""

    def families(self, lag: float) -> Sequence[Family]:
        """As metrics; `lag` is how long the event loop took to answer."""
        its = {"node": self.node, "namespace": self.namespace, "queue": self.queue}

        def gauge(name: str, help: str, value: float) -> Family:
            return Family(f"headrace_node_{name}", "gauge", help, [Sample(value, its)])

        return [
            Family(
                "headrace_node_attempts_total",
                "counter",
                "Attempts that ended, by type of event and outcome.",
                [
                    Sample(count, {**its, "type": type, "outcome": outcome})
                    for (type, outcome), count in sorted(self.ended.items())
                ],
            ),
            Family(
                "headrace_node_run_seconds",
                "histogram",
                "Run time of handlers.",
                histogram({math.inf: 0, **self.run_times}, self.run_time, its),
            ),
            gauge("running", "Handlers in progress.", self.running),
            gauge("buffered", "Events that are claimed and not started.", self.buffered),
            gauge("leases", "Leases held.", self.leases),
            gauge("abandoned", "Handlers that still run after their timeouts.", self.abandoned),
            gauge(
                "ready", "Whether the node claims, and PostgreSQL answers.", self.trouble is None
            ),
            *self._of_shards(its),
            gauge("loop_lag_seconds", "How long the event loop took to answer this request.", lag),
        ]

    def _of_shards(self, its: Mapping[str, str]) -> Sequence[Family]:
        told = [Sample(works, {**its, "shard": shard}) for shard, works in self.shards.items()]
        name, help = "headrace_node_shard_ready", "Whether the node claims from a shard."
        return [Family(name, "gauge", help, told)] if told else []


def resting(node: str, namespace: str, queue: str) -> Vitals:
    """Of a node that has not been started, or has stopped."""
    return Vitals(
        node,
        namespace,
        queue,
        "The node is not running.",
        ended={},
        run_times={},
        run_time=0,
        running=0,
        buffered=0,
        leases=0,
    )
