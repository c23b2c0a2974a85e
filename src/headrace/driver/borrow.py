"""How a client borrows verbs: each is listed once, and is a method of both clients. The list also
says how each verb finds its shards, where there are several."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from headrace.driver.runner import AsyncRunner, Runner
from headrace.engine import merging, paging, routing, sharded_publish, sharded_settings
from headrace.engine.routing import Route
from headrace.engine.verbs import Verbs, borrows, signature_of

P = ParamSpec("P")
T = TypeVar("T")


class Borrowed(Generic[P, T]):
    """A verb, for type checkers: its call is run by a client, or awaited by an async one."""

    def __init__(
        self, verb: Callable[Concatenate[Any, P], Generator[Any, Any, T]], route: Route
    ) -> None:
        self.verb = verb
        self.route = route
        """How a client of several shards runs it."""

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

    publish = Borrowed(Verbs.publish, sharded_publish.publish)
    publish_many = Borrowed(Verbs.publish_many, sharded_publish.publish_many)

    poll = Borrowed(Verbs.poll, routing.in_turn)
    poll_one = Borrowed(Verbs.poll_one, routing.in_turn)

    complete = Borrowed(Verbs.complete, routing.by_claim)
    fail = Borrowed(Verbs.fail, routing.by_claim)
    release = Borrowed(Verbs.release, routing.by_claim)
    finalize = Borrowed(Verbs.finalize, routing.by_claim)
    finish = Borrowed(Verbs.finish, routing.by_claim)

    resolve = Borrowed(Verbs.resolve, routing.by_claim)
    save_progress = Borrowed(Verbs.save_progress, routing.by_claim)
    progress = Borrowed(Verbs.progress, routing.by_ids(merging.together))

    cancel = Borrowed(Verbs.cancel, routing.by_id)
    reset = Borrowed(Verbs.reset, routing.by_id)
    rerun = Borrowed(Verbs.rerun, routing.by_id)
    purge = Borrowed(Verbs.purge, routing.by_filter)
    erase = Borrowed(Verbs.erase, routing.by_id)
    admin_log = Borrowed(Verbs.admin_log, paging.actions)

    event = Borrowed(Verbs.event, routing.by_id)
    events = Borrowed(Verbs.events, paging.pages)
    log = Borrowed(Verbs.log, routing.by_id)
    log_since = Borrowed(Verbs.log_since, paging.log_pages)
    story = Borrowed(Verbs.story, routing.by_id)
    why = Borrowed(Verbs.why, routing.by_id)
    find_events = Borrowed(Verbs.find_events, paging.newest("created_at"))

    dead_letters = Borrowed(Verbs.dead_letters, paging.letters)
    dead_letter = Borrowed(Verbs.dead_letter, routing.by_id)
    dead_letter_groups = Borrowed(Verbs.dead_letter_groups, paging.groups)
    redrive = Borrowed(Verbs.redrive, routing.by_filter)

    # Of change_queue and change_namespace mypy says that a setting could be called `self`.
    create_queue = Borrowed(Verbs.create_queue, sharded_settings.with_limits(merging.anyone))
    change_queue = Borrowed(Verbs.change_queue, sharded_settings.with_limits(routing.nothing))  # type: ignore[arg-type]
    delete_queue = Borrowed(Verbs.delete_queue, routing.to_all(routing.nothing))
    queue = Borrowed(Verbs.queue, routing.everywhere(merging.one_queue))
    queues = Borrowed(Verbs.queues, routing.everywhere(merging.queues))
    limits = Borrowed(Verbs.limits, routing.everywhere(merging.limits))
    pause = Borrowed(Verbs.pause, routing.to_all(routing.nothing))
    resume = Borrowed(Verbs.resume, routing.to_all(routing.nothing))
    drain = Borrowed(Verbs.drain, routing.to_all(routing.nothing))

    namespaces = Borrowed(Verbs.namespaces, routing.everywhere(merging.by_name("name")))
    create_namespace = Borrowed(Verbs.create_namespace, routing.to_all(merging.anyone))
    change_namespace = Borrowed(Verbs.change_namespace, routing.to_all(routing.nothing))  # type: ignore[arg-type]
    delete_namespace = Borrowed(Verbs.delete_namespace, routing.to_all(routing.nothing))

    schedule_task = Borrowed(Verbs.schedule_task, routing.by_schedule)
    schedules = Borrowed(Verbs.schedules, routing.everywhere(merging.by_name("name")))
    pause_schedule = Borrowed(Verbs.pause_schedule, routing.by_schedule)
    resume_schedule = Borrowed(Verbs.resume_schedule, routing.by_schedule)
    run_schedule = Borrowed(Verbs.run_schedule, routing.by_schedule)
    remove_schedule = Borrowed(Verbs.remove_schedule, routing.by_schedule)
    plan_schedules = Borrowed(Verbs.plan_schedules, routing.everywhere(merging.total))

    nodes = Borrowed(Verbs.nodes, routing.everywhere(merging.by_name("node_id")))
    unhandled_types = Borrowed(Verbs.unhandled_types, routing.everywhere(merging.unhandled))
    recoveries = Borrowed(Verbs.recoveries, paging.newest("recovery_start_time"))

    workers = Borrowed(Verbs.workers, routing.everywhere(merging.workers))
    stats = Borrowed(Verbs.stats, routing.everywhere(merging.stats))
    history = Borrowed(Verbs.history, routing.everywhere(merging.history))
    attention = Borrowed(Verbs.attention, routing.everywhere(merging.findings))

    state = Borrowed(Verbs.state, paging.states)
    save_state = Borrowed(Verbs.save_state, routing.to_all(routing.nothing))
    low_water = Borrowed(Verbs.low_water, routing.everywhere(merging.low_water))
    checkpoint = Borrowed(Verbs.checkpoint, routing.to_all(merging.checkpoint))
    checkpoints = Borrowed(Verbs.checkpoints, paging.checkpoints)

    create_token = Borrowed(Verbs.create_token, sharded_settings.token)
    tokens = Borrowed(Verbs.tokens, routing.everywhere(merging.by_name("name")))
    revoke_token = Borrowed(Verbs.revoke_token, routing.to_all(routing.nothing))
    bind_role = Borrowed(Verbs.bind_role, routing.to_all(routing.nothing))
    unbind_role = Borrowed(Verbs.unbind_role, routing.to_all(merging.anyone))
    bound_roles = Borrowed(Verbs.bound_roles, routing.everywhere(merging.by_name("role")))

    shard_of = Borrowed(Verbs.shard_of, routing.at_home)

    tick = Borrowed(Verbs.tick, routing.everywhere(merging.ticks))

    wait_for_capacity = Borrowed(Verbs.wait_for_capacity, routing.with_capacity)


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
