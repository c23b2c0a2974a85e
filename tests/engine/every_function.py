"""Every public function with arguments that make sense, called where there is something of every kind."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine

PUBLIC = """
select p.proname::text, 'namespace' = any (p.proargnames[:p.pronargs]) from pg_proc p
where p.pronamespace = 'headrace'::regnamespace and has_function_privilege('headrace_admin', p.oid, 'execute')
"""


def public_functions(db: Database) -> set[str]:
    return {name for name, _ in db.sql(PUBLIC)}


def functions_of_a_namespace(db: Database) -> set[str]:
    """The public functions that are told a namespace."""
    return {name for name, told in db.sql(PUBLIC) if told}


@dataclass(frozen=True)
class Life:
    """A namespace in which something is in every place; the names are the same in all of them, but for `own`."""

    namespace: str
    own: str  # an idempotency key that nobody else has used
    waiting: int
    held: Any
    batch: list[Any]
    keyed: Any  # the one of its key that is in work
    dead: int
    done: Any
    instance: UUID
    task: Any


def live(db: Database, namespace: str, times: int = 1) -> Life:
    """Make a namespace and live in it; `times` over, what counts is more."""
    engine = Engine(db, namespace)

    def call(function: str, **arguments: Any) -> list[Any]:
        return engine.call(function, namespace=namespace, **arguments)

    def publish(type: str, count: int = 1, **header: Any) -> list[int]:
        payload = {"from": namespace}
        return engine.publish(*[{"type": type, "payload": payload, **header}] * count * times)

    def claim(type: str, **options: Any) -> list[Any]:
        return engine.poll(types=[type], worker="a worker", **{"max_events": times, **options})

    call("create_namespace")
    call("create_queue", queue="other", types=["waiting", "dead"])
    call("create_queue", queue="paused", types=["nothing"])
    call("pause", queue="paused")
    call("change_queue", queue="main", settings='{"high_watermark": 60}')
    waiting = publish("waiting", 30)  # more than make a pack
    publish("late", delay=60)
    publish("keyed", 3, key="a key")
    keyed = claim("keyed")
    publish("held")
    held = claim("held", each=True)
    for one in held:
        call("save_progress", **attempt(one), progress=Jsonb({"step": 1}))
    publish("batch", 3)
    batch = claim("batch", max_events=3 * times)
    done = publish("done") and claim("done")
    engine.finish(done, ms=[5] * times)
    dead = publish("dead", max_retries=0) and claim("dead")
    engine.finish(dead, {str(n): {"action": "fail", "error": "no"} for n in range(1, times + 1)})
    own = f"only {namespace}"
    caused = {"type": "once", "causation_id": str(waiting[0])}
    engine.publish(*({**caused, "idempotency_key": key} for key in ("the same", own)))
    engine.publish({"type": "once", "unique": "a unique key"})
    engine.publish({"type": "once", "debounce": "a debounce key", "settle": 3600})
    instance = uuid4()
    call("register_node", node_id="a-node", instance=instance, handles=["waiting"])
    call("schedule_task", name="a task", cron_expression="0 0 1 1 *")
    [task] = call("tasks_to_plan")
    call("schedule_task", name="a paused task", cron_expression="0 0 1 1 *")
    call("pause_schedule", name="a paused task")
    call("plan_task", task_id=task.task_id, version=1, next_fires=[task.at + timedelta(days=1)])
    digest = sha256(namespace.encode()).digest()
    engine.call("create_token", name=f"of {namespace}", digest=digest, scopes=["publish"])
    call("checkpoint")
    engine.connection.execute(RECOVERY, [namespace])
    engine.connection.close()
    return Life(
        namespace, own, waiting[0], held[0], batch, keyed[0], dead[0].id, done[0], instance, task
    )


RECOVERY = """
insert into headrace.recoveries (namespace, queue, node_id, instance, events_recovered, recovery_start_time)
select q.namespace, q.id, 'a-node', gen_random_uuid(), 5, headrace._now()
from headrace.queues q where q.space = %s and q.name = 'main'
"""

HEADER = json.dumps(
    {
        "format": "headrace state",
        "version": 1,
        "origin": str(UUID(int=1)),
        "exported_at": "2026-01-01T00:00:00Z",
        "last_id": 0,
        "settings": {},
    }
)
Arguments = dict[str, Any]


def attempt(claim: Any) -> Arguments:
    return {"event": claim.id, "attempt": claim.attempt}


def nothing(life: Life) -> Arguments:
    return {}


def schedule(life: Life) -> Arguments:
    return {"name": "a task"}


def node(life: Life) -> Arguments:
    return {"node_id": "a-node", "instance": life.instance}


def past(life: Life) -> Arguments:
    return {"event_id": life.waiting}


# What each is called with, beside the namespace.
CALLS: dict[str, Callable[[Life], Arguments]] = {
    "published_before": lambda life: {"events": Jsonb([{"idempotency_key": "nobody's"}])},
    "shard_of": lambda life: {"key": "a key"},
    "publish": lambda life: {
        "events": json.dumps(
            [
                {"type": "once", "idempotency_key": life.own},
                {"type": "keyed", "key": "a key"},
                {"type": "waiting"},
            ]
        )
    },
    "publish_one": lambda life: {"type": "waiting", "payload": Jsonb({"own": life.own})},
    "publish_many": lambda life: {"type": "waiting", "payloads": Jsonb([{"own": life.own}])},
    "has_capacity": nothing,
    # claims
    "poll": lambda life: {"max_events": 1000, "worker": "a worker"},
    "poll_batch": lambda life: {"max_events": 1000, "types": ["waiting"], "queue": "other"},
    "poll_for": lambda life: {"workers": ["a", "b"], "types": ["waiting"], "queue": "other"},
    "finish": lambda life: {
        "queue": "main",
        "events": [life.held.id, *(claim.id for claim in life.batch)],
        "attempts": [1] * (1 + len(life.batch)),
        "leases": [life.held.lease, *(claim.lease for claim in life.batch)],
        "others": Jsonb({"1": {"action": "fail"}}),
    },
    "complete": lambda life: attempt(life.keyed),
    "complete_lease": lambda life: {
        "queue": "main",
        "lease": life.batch[0].lease,
        "size": len(life.batch),
    },
    "complete_held": lambda life: {"queue": "main", **attempt(life.held)},
    "fail": lambda life: {**attempt(life.held), "error": "no"},
    "release": lambda life: attempt(life.held),
    "finalize": lambda life: {**attempt(life.held), "errors": ["no"]},
    "finalized": lambda life: {"event": life.held.id},
    "extend": lambda life: {
        "queue": "main",
        "leases": [life.held.lease, life.batch[0].lease],
        "by": timedelta(days=1),
    },
    "report": lambda life: {
        "queue": "main",
        "events": [life.held.id, *(claim.id for claim in life.batch)],
        "attempts": [None] * (1 + len(life.batch)),
        "workers": ["a worker"] * (1 + len(life.batch)),
        "others": Jsonb({"1": {"action": "fail"}}),
    },
    "start": lambda life: {"event": life.held.id, "worker": "a worker"},
    "heartbeat": lambda life: {
        "event": life.held.id,
        "worker": "a worker",
        "by": timedelta(days=1),
    },
    "resolve": lambda life: {"queue": "main", **attempt(life.done)},
    "save_progress": lambda life: {**attempt(life.held), "progress": Jsonb({"step": 2})},
    "fall_asleep": nothing,
    # reading
    "event": past,
    "event_log": past,
    "deliveries": past,
    "progress": lambda life: {"events": [life.held.id]},
    "events": lambda life: {"limit": 1000},
    "count_events": nothing,
    "log_since": lambda life: {"limit": 1000},
    "dead_letter": lambda life: {"event_id": life.dead},
    "dead_letters": nothing,
    "dead_letter_groups": nothing,
    "workers": nothing,
    "limits": nothing,
    "stats": nothing,
    "history": nothing,
    "attention": nothing,
    "lineage": past,
    "why": lambda life: {**past(life), "queue": "main"},
    "find_events": lambda life: {"word": life.own},
    "queue": nothing,
    "queues": nothing,
    "state": lambda life: {"limit": 1000},
    "low_water": nothing,
    "checkpoints": nothing,
    "recoveries": nothing,
    "replay": lambda life: {"limit": 1000, "mark": "0 0 100000 100000 "},
    "save_state": nothing,
    "export_queue": nothing,
    "export_events": nothing,
    "fence": lambda life: {"queue": "paused"},
    "import_state": lambda life: {
        "queue": "imported",
        "header": HEADER,
        "events": "[]",
        "total": 0,
    },
    "checkpoint": nothing,
    # one event, or many
    "cancel": past,
    "reset": lambda life: {"event_id": life.held.id},
    "rerun": lambda life: {"event_id": life.done.id},
    "redrive": lambda life: {"ids": [life.dead]},
    "purge": lambda life: {"queue": "main", "what": "dead_letters", "ids": [life.dead]},
    "erase": past,
    # queues and namespaces
    "create_queue": lambda life: {"queue": "new", "after": 0},
    "change_queue": lambda life: {"queue": "other", "settings": '{"max_retries": 9}'},
    "delete_queue": lambda life: {"queue": "other", "with_deliveries": True},
    "pause": nothing,
    "resume": lambda life: {"queue": "paused"},
    "drain": nothing,
    "create_namespace": nothing,
    "change_namespace": lambda life: {"settings": '{"unhandled": "dead_letter"}'},
    "delete_namespace": lambda life: {"with_deliveries": True},
    # nodes and schedules
    "register_node": node,
    "touch_node_heartbeat": node,
    "unregister_node": node,
    "recover": lambda life: {"node_id": "a-node", "instance": UUID(int=1)},
    "nodes": nothing,
    "unhandled_types": nothing,
    "schedule_task": lambda life: {**schedule(life), "cron_expression": "0 0 1 2 *"},
    "tasks_to_plan": nothing,
    "plan_task": lambda life: {
        "task_id": life.task.task_id,
        "version": 1,
        "next_fires": [life.task.at + timedelta(days=2)],
    },
    "schedules": nothing,
    "pause_schedule": schedule,
    "resume_schedule": lambda life: {"name": "a paused task"},
    "run_schedule": schedule,
    "remove_schedule": schedule,
    "admin_log": nothing,
}
# Those that are about no namespace, or about all of them.
CALLS_OF_ALL: dict[str, Callable[[Life], Arguments]] = {
    "version": nothing,
    "max_payload": nothing,
    "tick": lambda life: {"upkeep": True},
    "stay": lambda life: {"instance": life.instance},
    "hear_interruptions": lambda life: {"instance": life.instance},
    "wake_up": lambda life: {"channel": "headrace_1"},
    "namespaces": nothing,
    "configure": lambda life: {"name": "retention", "value": "3 months"},
    "queue_name_for_namespace": lambda life: {"p_namespace": "a-b"},
    "bind_role": lambda life: {"role": "headrace_reader", "namespaces": [life.namespace]},
    "unbind_role": lambda life: {"role": "headrace_reader"},
    "bound_roles": nothing,
    "create_token": lambda life: {"name": "new", "digest": b"n" * 32, "scopes": ["read"]},
    "tokens": nothing,
    "live_tokens": nothing,
    "revoke_token": lambda life: {"name": f"of {life.namespace}"},
    "totals": nothing,
    "backlog": nothing,
    "count_nodes": nothing,
    "locks_in_the_way": nothing,
    "longest_waits": nothing,
    "ticking": nothing,
    "log_end": nothing,
    "log_now": nothing,
    "log_waits": lambda life: {"mark": "1-0 0 0 0 0 3/7"},
    "attention_in": lambda life: {"namespaces": [life.namespace]},
    "ids_behind": nothing,
    "repair_ids": nothing,
    "shard": nothing,
    "place": lambda life: {"id": life.waiting},
    "slots": nothing,
    "give_slots": lambda life: {"slots": [7], "recipient": 0},
    "accept_slots": lambda life: {"giver": 1, "given": Jsonb([])},
    "slots_left": lambda life: {"slots": [7]},
    "open_slots": lambda life: {"slots": [7]},
    "latencies": lambda life: {"bounds": [1.0], "after": 0},
    "run_scheduled_task": lambda life: {"task_id": life.task.task_id},
}


def arguments(function: str, life: Life) -> Arguments:
    if function in CALLS_OF_ALL:
        return CALLS_OF_ALL[function](life)
    return {"namespace": life.namespace, **CALLS[function](life)}
