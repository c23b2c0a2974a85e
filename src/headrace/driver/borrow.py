"""How a client borrows verbs: each is listed once, and is a method of both clients."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from headrace.driver.runner import AsyncRunner, Runner
from headrace.engine.verbs import Verbs, borrows, signature_of

P = ParamSpec("P")
T = TypeVar("T")


class Borrowed(Generic[P, T]):
    """A verb, for type checkers: its call is run by a client, or awaited by an async one."""

    def __init__(self, verb: Callable[Concatenate[Any, P], Generator[Any, Any, T]]) -> None:
        self.verb = verb

    @overload
    def __get__(self, client: Runner, kind: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: AsyncRunner, kind: Any = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, kind: Any) -> Callable[..., Any]: ...
    def __get__(self, client: Any, kind: Any = None) -> Any:
        raise NotImplementedError("a client has methods in the place of these")


class Borrows:
    """The verbs that both clients have. A class that has this as its base gets a method for each: a
    plain function, which costs a call as little as one that was written there."""

    def __init_subclass__(cls) -> None:
        if Borrows in cls.__bases__:
            make = _awaited if issubclass(cls, AsyncRunner) else _plain
            for name, one in vars(Borrows).items():
                if isinstance(one, Borrowed):
                    method = borrows(one.verb)(make(one.verb))
                    method.__module__ = cls.__module__
                    method.__qualname__ = f"{cls.__qualname__}.{name}"
                    setattr(cls, name, method)

    publish = Borrowed(Verbs.publish)
    publish_many = Borrowed(Verbs.publish_many)

    poll = Borrowed(Verbs.poll)
    poll_one = Borrowed(Verbs.poll_one)

    complete = Borrowed(Verbs.complete)
    fail = Borrowed(Verbs.fail)
    release = Borrowed(Verbs.release)
    finalize = Borrowed(Verbs.finalize)
    finish = Borrowed(Verbs.finish)

    resolve = Borrowed(Verbs.resolve)
    save_progress = Borrowed(Verbs.save_progress)
    progress = Borrowed(Verbs.progress)

    cancel = Borrowed(Verbs.cancel)
    reset = Borrowed(Verbs.reset)
    purge = Borrowed(Verbs.purge)
    erase = Borrowed(Verbs.erase)
    admin_log = Borrowed(Verbs.admin_log)

    event = Borrowed(Verbs.event)
    events = Borrowed(Verbs.events)
    log = Borrowed(Verbs.log)
    log_since = Borrowed(Verbs.log_since)
    story = Borrowed(Verbs.story)
    why = Borrowed(Verbs.why)
    find_events = Borrowed(Verbs.find_events)

    dead_letters = Borrowed(Verbs.dead_letters)
    dead_letter = Borrowed(Verbs.dead_letter)
    dead_letter_groups = Borrowed(Verbs.dead_letter_groups)
    redrive = Borrowed(Verbs.redrive)

    # Of change_queue and change_namespace mypy says that a setting could be called `self`.
    create_queue = Borrowed(Verbs.create_queue)
    change_queue = Borrowed(Verbs.change_queue)  # type: ignore[arg-type]
    delete_queue = Borrowed(Verbs.delete_queue)
    queue = Borrowed(Verbs.queue)
    queues = Borrowed(Verbs.queues)
    pause = Borrowed(Verbs.pause)
    resume = Borrowed(Verbs.resume)
    drain = Borrowed(Verbs.drain)

    namespaces = Borrowed(Verbs.namespaces)
    create_namespace = Borrowed(Verbs.create_namespace)
    change_namespace = Borrowed(Verbs.change_namespace)  # type: ignore[arg-type]
    delete_namespace = Borrowed(Verbs.delete_namespace)

    schedule_task = Borrowed(Verbs.schedule_task)
    schedules = Borrowed(Verbs.schedules)
    pause_schedule = Borrowed(Verbs.pause_schedule)
    resume_schedule = Borrowed(Verbs.resume_schedule)
    run_schedule = Borrowed(Verbs.run_schedule)
    remove_schedule = Borrowed(Verbs.remove_schedule)
    plan_schedules = Borrowed(Verbs.plan_schedules)

    nodes = Borrowed(Verbs.nodes)
    unhandled_types = Borrowed(Verbs.unhandled_types)
    recoveries = Borrowed(Verbs.recoveries)

    workers = Borrowed(Verbs.workers)
    stats = Borrowed(Verbs.stats)
    history = Borrowed(Verbs.history)
    attention = Borrowed(Verbs.attention)

    state = Borrowed(Verbs.state)
    save_state = Borrowed(Verbs.save_state)
    low_water = Borrowed(Verbs.low_water)
    checkpoint = Borrowed(Verbs.checkpoint)
    checkpoints = Borrowed(Verbs.checkpoints)

    create_token = Borrowed(Verbs.create_token)
    tokens = Borrowed(Verbs.tokens)
    revoke_token = Borrowed(Verbs.revoke_token)
    bind_role = Borrowed(Verbs.bind_role)
    unbind_role = Borrowed(Verbs.unbind_role)
    bound_roles = Borrowed(Verbs.bound_roles)

    tick = Borrowed(Verbs.tick)

    wait_for_capacity = Borrowed(Verbs.wait_for_capacity)


def _plain(verb: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, /, *given: Any, **named: Any) -> Any:
        return self.run(verb(self.verbs, *given, **named))

    def joined(self: Any, /, *given: Any, **named: Any) -> Any:
        return self.run(verb(self.verbs, *given, **named), named.get("connection"))

    def waited(self: Any, /, *given: Any, **named: Any) -> Any:
        return self.take_turns(verb(self.verbs, *given, **named))

    return waited if _waits(verb) else joined if _joins(verb) else call


def _awaited(verb: Callable[..., Any]) -> Callable[..., Any]:
    async def call(self: Any, /, *given: Any, **named: Any) -> Any:
        return await self.run(verb(self.verbs, *given, **named))

    async def joined(self: Any, /, *given: Any, **named: Any) -> Any:
        return await self.run(verb(self.verbs, *given, **named), named.get("connection"))

    async def waited(self: Any, /, *given: Any, **named: Any) -> Any:
        return await self.take_turns(verb(self.verbs, *given, **named))

    return waited if _waits(verb) else joined if _joins(verb) else call


def _waits(verb: Callable[..., Any]) -> bool:
    return str(signature_of(verb).return_annotation).startswith("Turns[")


def _joins(verb: Callable[..., Any]) -> bool:
    """Whether a verb can take part in a transaction of the caller's."""
    return "connection" in signature_of(verb).parameters
