"""Headrace: a durable event queue and bus that lives in PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.async_client import AsyncEventQueue, connect_async
    from headrace.client import EventQueue, connect, migrate
    from headrace.errors import (
        AlreadyEnded,
        Busy,
        Conflict,
        CursorNotFound,
        EmbeddedError,
        EventNotFound,
        FinishConflict,
        HeadraceError,
        IdempotencyConflict,
        InvalidInput,
        InvalidPayload,
        LeaseLost,
        NamespaceNotEmpty,
        NamespaceNotFound,
        NotEnded,
        NotFinished,
        NotFound,
        NotInstallable,
        NotRunning,
        NotStored,
        NotTaken,
        OutcomeUnknown,
        PartlyStored,
        PayloadTooLarge,
        QueueDraining,
        QueueExists,
        QueueFull,
        QueueNotEmpty,
        QueueNotFound,
        QueueNotPaused,
        ScheduleNotFound,
        SchemaError,
        SchemaMismatch,
        SchemaMissing,
        SequenceBehind,
        ShardMismatch,
        TokenNotFound,
        Unavailable,
        UniqueKeyHeld,
        WrongIsolation,
        WrongShard,
    )
    from headrace.model import (
        AdminAction,
        BoundRole,
        Checkpoint,
        Claim,
        Claimed,
        Completed,
        DeadLetter,
        DeadLetterGroup,
        Delivery,
        Event,
        EventPage,
        Exponential,
        Extended,
        Failed,
        Fixed,
        History,
        Ids,
        Imported,
        Limit,
        LimitedGroup,
        Linear,
        LogEntry,
        LogPage,
        LowWater,
        Namespace,
        NewEvent,
        NodeInfo,
        Point,
        Queue,
        QueueState,
        Recovery,
        Released,
        ScheduledTask,
        Stats,
        Tick,
        Token,
        UnhandledType,
        Verdict,
        Worker,
    )
    from headrace.model.attention import Finding
    from headrace.model.codec import Codec
    from headrace.model.story import Attempt, Relative, Story
    from headrace.node import Node
    from headrace.node.handler.context import AsyncContext, Context
    from headrace.node.handler.outcome import Discard, Done, Retry, Snooze

__all__ = [
    "AdminAction",
    "AlreadyEnded",
    "AsyncContext",
    "AsyncEventQueue",
    "Attempt",
    "BoundRole",
    "Busy",
    "Checkpoint",
    "Claim",
    "Claimed",
    "Codec",
    "Completed",
    "Conflict",
    "Context",
    "CursorNotFound",
    "DeadLetter",
    "DeadLetterGroup",
    "Delivery",
    "Discard",
    "Done",
    "EmbeddedError",
    "Event",
    "EventNotFound",
    "EventPage",
    "EventQueue",
    "Exponential",
    "Extended",
    "Failed",
    "Finding",
    "FinishConflict",
    "Fixed",
    "HeadraceError",
    "History",
    "IdempotencyConflict",
    "Ids",
    "Imported",
    "InvalidInput",
    "InvalidPayload",
    "LeaseLost",
    "Limit",
    "LimitedGroup",
    "Linear",
    "LogEntry",
    "LogPage",
    "LowWater",
    "Namespace",
    "NamespaceNotEmpty",
    "NamespaceNotFound",
    "NewEvent",
    "Node",
    "NodeInfo",
    "NotEnded",
    "NotFinished",
    "NotFound",
    "NotInstallable",
    "NotRunning",
    "NotStored",
    "NotTaken",
    "OutcomeUnknown",
    "PartlyStored",
    "PayloadTooLarge",
    "Point",
    "Queue",
    "QueueDraining",
    "QueueExists",
    "QueueFull",
    "QueueNotEmpty",
    "QueueNotFound",
    "QueueNotPaused",
    "QueueState",
    "Recovery",
    "Relative",
    "Released",
    "Retry",
    "ScheduleNotFound",
    "ScheduledTask",
    "SchemaError",
    "SchemaMismatch",
    "SchemaMissing",
    "SequenceBehind",
    "ShardMismatch",
    "Snooze",
    "Stats",
    "Story",
    "Tick",
    "Token",
    "TokenNotFound",
    "Unavailable",
    "UnhandledType",
    "UniqueKeyHeld",
    "Verdict",
    "Worker",
    "WrongIsolation",
    "WrongShard",
    "connect",
    "connect_async",
    "migrate",
]

# Each is loaded at its first use: a program that only publishes loads no node, and
# `headrace --help` not even a driver.
_HOMES = (
    *("errors", "model", "client", "async_client", "model.attention", "model.codec", "model.story"),
    *("node", "node.handler.context", "node.handler.outcome"),
)
# The modules that programs use by name: `from headrace import logs`.
_MODULES = {"logs": "telemetry.logs", "tracing": "telemetry.tracing"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            found = vars(import_module(f"headrace.{home}"))
            if name in found:
                return globals().setdefault(name, found[name])
    elif not name.startswith("_"):
        try:
            return import_module(f"headrace.{_MODULES.get(name, name)}")
        except ModuleNotFoundError as error:
            if error.name != f"headrace.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
