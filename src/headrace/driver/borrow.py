"""How a client borrows verbs: each is listed once, and is a method of both clients. The list also
says how each verb finds its shards, where there are several."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from headrace.driver.runner import AsyncRunner, Runner
from headrace.engine import shard_pages, shard_publish, shard_replies, shard_routes, shard_settings
from headrace.engine.shard_routes import Route
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

    publish = Borrowed(Verbs.publish, shard_publish.publish)
    publish_many = Borrowed(Verbs.publish_many, shard_publish.publish_many)

    poll = Borrowed(Verbs.poll, shard_routes.in_turn)
    poll_one = Borrowed(Verbs.poll_one, shard_routes.in_turn)

    complete = Borrowed(Verbs.complete, shard_routes.by_claim)
    fail = Borrowed(Verbs.fail, shard_routes.by_claim)
    release = Borrowed(Verbs.release, shard_routes.by_claim)
    finalize = Borrowed(Verbs.finalize, shard_routes.by_claim)
    finish = Borrowed(Verbs.finish, shard_routes.by_claim)

    resolve = Borrowed(Verbs.resolve, shard_routes.by_claim)
    save_progress = Borrowed(Verbs.save_progress, shard_routes.by_claim)
    progress = Borrowed(Verbs.progress, shard_routes.by_ids(shard_replies.together))

    cancel = Borrowed(Verbs.cancel, shard_routes.by_id)
    reset = Borrowed(Verbs.reset, shard_routes.by_id)
    rerun = Borrowed(Verbs.rerun, shard_routes.by_id)
    purge = Borrowed(Verbs.purge, shard_routes.by_filter)
    erase = Borrowed(Verbs.erase, shard_routes.by_id)
    admin_log = Borrowed(Verbs.admin_log, shard_pages.actions)

    event = Borrowed(Verbs.event, shard_routes.by_id)
    events = Borrowed(Verbs.events, shard_pages.pages)
    log = Borrowed(Verbs.log, shard_routes.by_id)
    log_since = Borrowed(Verbs.log_since, shard_pages.log_pages)
    story = Borrowed(Verbs.story, shard_routes.by_id)
    why = Borrowed(Verbs.why, shard_routes.by_id)
    find_events = Borrowed(Verbs.find_events, shard_pages.newest("created_at"))

    dead_letters = Borrowed(Verbs.dead_letters, shard_pages.letters)
    dead_letter = Borrowed(Verbs.dead_letter, shard_routes.by_id)
    dead_letter_groups = Borrowed(Verbs.dead_letter_groups, shard_pages.groups)
    redrive = Borrowed(Verbs.redrive, shard_routes.by_filter)

    # Of change_queue and change_namespace mypy says that a setting could be called `self`.
    create_queue = Borrowed(Verbs.create_queue, shard_settings.with_limits(shard_replies.anyone))
    change_queue = Borrowed(Verbs.change_queue, shard_settings.with_limits(shard_routes.nothing))  # type: ignore[arg-type]
    delete_queue = Borrowed(Verbs.delete_queue, shard_routes.to_all(shard_routes.nothing))
    queue = Borrowed(Verbs.queue, shard_routes.everywhere(shard_replies.one_queue))
    queues = Borrowed(Verbs.queues, shard_routes.everywhere(shard_replies.queues))
    limits = Borrowed(Verbs.limits, shard_routes.everywhere(shard_replies.limits))
    pause = Borrowed(Verbs.pause, shard_routes.to_all(shard_routes.nothing))
    resume = Borrowed(Verbs.resume, shard_routes.to_all(shard_routes.nothing))
    drain = Borrowed(Verbs.drain, shard_routes.to_all(shard_routes.nothing))

    namespaces = Borrowed(Verbs.namespaces, shard_routes.everywhere(shard_replies.by_name("name")))
    create_namespace = Borrowed(Verbs.create_namespace, shard_routes.to_all(shard_replies.anyone))
    change_namespace = Borrowed(Verbs.change_namespace, shard_routes.to_all(shard_routes.nothing))  # type: ignore[arg-type]
    delete_namespace = Borrowed(Verbs.delete_namespace, shard_routes.to_all(shard_routes.nothing))

    schedule_task = Borrowed(Verbs.schedule_task, shard_routes.by_schedule)
    schedules = Borrowed(Verbs.schedules, shard_routes.everywhere(shard_replies.by_name("name")))
    pause_schedule = Borrowed(Verbs.pause_schedule, shard_routes.by_schedule)
    resume_schedule = Borrowed(Verbs.resume_schedule, shard_routes.by_schedule)
    run_schedule = Borrowed(Verbs.run_schedule, shard_routes.by_schedule)
    remove_schedule = Borrowed(Verbs.remove_schedule, shard_routes.by_schedule)
    plan_schedules = Borrowed(Verbs.plan_schedules, shard_routes.everywhere(shard_replies.total))

    nodes = Borrowed(Verbs.nodes, shard_routes.everywhere(shard_replies.by_name("node_id")))
    unhandled_types = Borrowed(
        Verbs.unhandled_types, shard_routes.everywhere(shard_replies.unhandled)
    )
    recoveries = Borrowed(Verbs.recoveries, shard_pages.newest("recovery_start_time"))

    workers = Borrowed(Verbs.workers, shard_routes.everywhere(shard_replies.workers))
    stats = Borrowed(Verbs.stats, shard_routes.everywhere(shard_replies.stats))
    history = Borrowed(Verbs.history, shard_routes.everywhere(shard_replies.history))
    attention = Borrowed(Verbs.attention, shard_routes.everywhere(shard_replies.findings))

    state = Borrowed(Verbs.state, shard_pages.states)
    save_state = Borrowed(Verbs.save_state, shard_routes.to_all(shard_routes.nothing))
    low_water = Borrowed(Verbs.low_water, shard_routes.everywhere(shard_replies.low_water))
    checkpoint = Borrowed(Verbs.checkpoint, shard_routes.to_all(shard_replies.checkpoint))
    checkpoints = Borrowed(Verbs.checkpoints, shard_pages.checkpoints)

    create_token = Borrowed(Verbs.create_token, shard_settings.token)
    tokens = Borrowed(Verbs.tokens, shard_routes.everywhere(shard_replies.by_name("name")))
    revoke_token = Borrowed(Verbs.revoke_token, shard_routes.to_all(shard_routes.nothing))
    bind_role = Borrowed(Verbs.bind_role, shard_routes.to_all(shard_routes.nothing))
    unbind_role = Borrowed(Verbs.unbind_role, shard_routes.to_all(shard_replies.anyone))
    bound_roles = Borrowed(
        Verbs.bound_roles, shard_routes.everywhere(shard_replies.by_name("role"))
    )

    shard_of = Borrowed(Verbs.shard_of, shard_routes.at_home)

    tick = Borrowed(Verbs.tick, shard_routes.everywhere(shard_replies.ticks))

    wait_for_capacity = Borrowed(Verbs.wait_for_capacity, shard_routes.with_capacity)


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
