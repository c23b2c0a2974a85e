"""The cases: each a list of contenders, ours first, and the goals that are set for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bench.cases import (
    backlog,
    bulk,
    drain,
    http,
    limits,
    nodes,
    one,
    single,
    snapshot,
    state,
    tenants,
    together,
    transactional,
)
from bench.measure import Contender
from bench.server import Server


@dataclass(frozen=True)
class Goal:
    """A bound on the ratio to another contender, of rates (at least) or of times (at most)."""

    against: str
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Setting:
    """What a case may use to set up its contenders."""

    server: Server
    opened: ExitStack
    backlog: int

    def database(self) -> str:
        return self.opened.enter_context(self.server.database())


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    share: float  # of --events that one turn takes: a commit per event takes longer
    turns: int  # of each contender per round: what waits for the disk is noisy, so it has many short ones
    goals: tuple[Goal, ...]
    contenders: Callable[[Setting], list[Contender]]
    full: bool = False  # only with --full
    rounds: int = 1000  # at most


def cases() -> list[Case]:
    return [
        Case(
            "bulk",
            "bulk publish",
            1,
            1,
            (Goal("floor", at_least=0.9), Goal("pgmq", at_least=1.1)),
            lambda setting: bulk.contenders(setting.database()),
        ),
        Case(
            "single",
            "publish one by one",
            0.005,
            5,
            (Goal("floor", at_least=0.85),),
            lambda setting: single.contenders(setting.database()),
        ),
        Case(
            "one",
            "poll of one and complete",
            0.005,
            5,
            (Goal("publish", at_most=2),),
            lambda setting: one.contenders(setting.database(), setting.database()),
        ),
        Case(
            "tasks",
            "32 tasks of one client publish one by one",
            0.1,
            3,
            (Goal("one task", at_least=8),),
            lambda setting: together.tasks(setting.database()),
        ),
        Case(
            "threads",
            "32 threads of one client publish one by one",
            0.1,
            3,
            (Goal("one thread", at_least=8),),
            lambda setting: together.threads(setting.database()),
        ),
        Case(
            "drain",
            "drain, one process",
            1,
            1,
            (
                Goal("floor", at_least=0.8),
                Goal("floor (asyncpg)", at_least=0.8),
                Goal("pgmq", at_least=1.4),
            ),
            lambda setting: drain.contenders(setting.database()),
        ),
        Case(
            "node",
            "drain, one node",
            4,
            1,
            (
                Goal("floor", at_least=0.8),
                Goal("graphile-worker", at_least=1.8),
                Goal("pgqueuer", at_least=5),
                Goal("pgmq", at_least=1.4),
            ),
            lambda setting: nodes.drain_contenders(setting.database(), 1),
            rounds=3,
        ),
        Case(
            "nodes",
            "drain, two nodes",
            4,
            1,
            (Goal("graphile-worker", at_least=1.5), Goal("pgmq", at_least=1.2)),
            lambda setting: nodes.drain_contenders(setting.database(), 2),
            rounds=3,
        ),
        Case(
            "in-and-out",
            "bulk in and one node out",
            3,
            1,
            (Goal("graphile-worker", at_least=2), Goal("pgmq", at_least=1)),
            lambda setting: nodes.in_and_out_contenders(setting.database()),
            rounds=3,
        ),
        Case(
            "plain",
            "drain, one node, plain handlers",
            2,
            1,
            (),
            lambda setting: nodes.kinds(setting.database()),
        ),
        Case(
            "transactional-node",
            "transactional handlers of a node, 16 at once",
            0.1,
            2,
            (Goal("floor", at_least=0.8),),
            lambda setting: nodes.transactional_contenders(setting.database()),
        ),
        Case(
            "transactional",
            "finish in the handler's transaction, 16 at once",
            0.025,
            3,
            (Goal("floor", at_least=0.8),),
            lambda setting: transactional.contenders(setting.database()),
        ),
        Case(
            "limits",
            "publish below a limit, one by one",
            0.05,
            5,
            (Goal("no limits", at_least=0.95),),
            lambda setting: limits.contenders(setting.database(), setting.database()),
        ),
        Case(
            "limits-bulk",
            "publish below a limit, in bulk",
            1,
            1,
            (Goal("no limits", at_least=0.95),),
            lambda setting: limits.bulk_contenders(setting.database(), setting.database()),
        ),
        Case(
            "tenants",
            "drain, 1,000 tenants with a limit each",
            1,
            1,
            (Goal("no limits", at_least=0.5),),
            lambda setting: tenants.contenders(setting.database(), setting.database()),
        ),
        Case(
            "state",
            "drain, one node, with its queue's state saved",
            10,
            1,
            (Goal("no saving", at_least=0.97),),
            lambda setting: state.contenders(setting.database(), setting.database()),
            rounds=3,
        ),
        Case(
            "http",
            "publish over HTTP, 32 connections",
            0.05,
            3,
            (Goal("floor", at_least=3),),
            lambda setting: http.contenders(setting.database(), http.MANY),
        ),
        Case(
            "http-one",
            "publish over HTTP, one connection",
            0.005,
            3,
            (),
            lambda setting: http.contenders(setting.database(), 1),
        ),
        Case(
            "http-work",
            "claim and complete over HTTP, 32 connections",
            0.02,
            3,
            (),
            lambda setting: http.work_contenders(setting.database()),
        ),
        Case(
            "backlog",
            "claim from a long backlog, time",
            0.02,
            2,
            (Goal("short backlog", at_most=1.15),),
            lambda setting: backlog.contenders(
                setting.database(), setting.database(), setting.backlog
            ),
            full=True,
        ),
        Case(
            "rare",
            "claim a rare type behind a backlog, time",
            0.02,
            2,
            (Goal("no backlog", at_most=1.5),),
            lambda setting: backlog.rare_contenders(
                setting.database(), setting.database(), setting.backlog
            ),
            full=True,
        ),
        Case(
            "snapshot",
            "drain, one node, after half a backlog under a held snapshot",
            4,
            1,
            (Goal("no snapshot", at_least=0.8),),
            lambda setting: snapshot.contenders(
                setting.database(), setting.database(), setting.backlog
            ),
            full=True,
            rounds=3,
        ),
    ]
