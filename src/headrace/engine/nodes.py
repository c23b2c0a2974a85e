"""Nodes: registered, alive, and what they recover of earlier starts; and types without a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from headrace.engine.caller import Caller
from headrace.engine.json_values import encode
from headrace.engine.statement import Row, Statement, Steps, ask, timed
from headrace.model import NodeInfo, Recovered, Recovery, UnhandledType, told


def register_node(
    namespace: str,
    node_id: str,
    instance: str,
    display_name: str | None,
    description: str | None,
    metadata: Mapping[str, Any],
    handles: list[str],
    worker: str,
    at_once: int | None,
) -> Statement[str]:
    """Returns the node's id as it is stored: a character that is not one of `A-Za-z0-9._:-` becomes
    a hyphen."""
    return Statement(
        "select headrace.register_node(%s, %s, %s::pg_catalog.uuid, %s, %s, %s::pg_catalog.jsonb, %s::pg_catalog.text[], %s, %s::int)",
        (
            *(namespace, node_id, instance, display_name, description),
            *(encode(metadata, "the metadata of a node").decode(), handles, worker, at_once),
        ),
        lambda rows: rows[0][0],
    )


def touch_node_heartbeat(
    namespace: str, node_id: str, instance: str
) -> Statement[Literal["alive", "replaced", "missing"]]:
    return Statement(
        "select headrace.touch_node_heartbeat(%s, %s, %s::pg_catalog.uuid)",
        (namespace, node_id, instance),
        lambda rows: rows[0][0],
    )


def unregister_node(namespace: str, node_id: str, instance: str) -> Statement[bool]:
    return Statement(
        "select headrace.unregister_node(%s, %s, %s::pg_catalog.uuid)",
        (namespace, node_id, instance),
        lambda rows: rows[0][0],
    )


def nodes(namespace: str) -> Statement[list[NodeInfo]]:
    return Statement(
        "select node_id, alive, display_name, description, metadata::pg_catalog.text, handles, worker, "
        "instance::pg_catalog.text, pg_catalog.timestamptz_send(registered_at), "
        "pg_catalog.timestamptz_send(started_at), "
        "pg_catalog.timestamptz_send(last_heartbeat), pg_catalog.timestamptz_send(stopped_at) "
        "from headrace.nodes(%s)",
        (namespace,),
        lambda rows: [_node(row) for row in rows],
    )


def unhandled_types(namespace: str) -> Statement[list[UnhandledType]]:
    return Statement(
        "select queue, type, deliveries, pg_catalog.timestamptz_send(oldest_at), "
        "pg_catalog.timestamptz_send(since) from headrace.unhandled_types(%s)",
        (namespace,),
        lambda rows: [UnhandledType(*timed(row, 3, 4)) for row in rows],
    )


def _node(row: Row) -> NodeInfo:
    values = timed(row, 8, 9, 10, 11)
    values[4], values[5] = told(row[4]), tuple(row[5])
    return NodeInfo(*values)


def recoveries(namespace: str, queue: str, limit: int) -> Statement[list[Recovery]]:
    return Statement(
        "select node_id, checkpoint_id, events_recovered, "
        "pg_catalog.timestamptz_send(recovery_start_time), "
        "pg_catalog.timestamptz_send(recovery_complete_time), status "
        "from headrace.recoveries(%s, %s, %s::int)",
        (namespace, queue, limit),
        lambda rows: [Recovery(*timed(row, 3, 4)) for row in rows],
    )


def stay(instance: str) -> Statement[bool]:
    return Statement(
        "select headrace.stay(%s::pg_catalog.uuid)", (instance,), lambda rows: rows[0][0]
    )


def recover(namespace: str, node_id: str, instance: str) -> Statement[Recovered]:
    return Statement(
        "select recovered, state from headrace.recover(%s, %s, %s::pg_catalog.uuid)",
        (namespace, node_id, instance),
        lambda rows: Recovered(*rows[0]),
    )


class NodeVerbs(Caller):
    """Verbs about nodes."""

    def nodes(self) -> Steps[list[NodeInfo]]:
        """The registered nodes of this namespace, by id, and whether they are alive."""
        return ask(nodes(self.namespace))

    def unhandled_types(self) -> Steps[list[UnhandledType]]:
        """The types of which deliveries wait in a queue of this namespace while no live node
        handles them."""
        return ask(unhandled_types(self.namespace))

    def recoveries(self, *, limit: int = 100) -> Steps[list[Recovery]]:
        """What nodes took over in this queue from earlier starts of themselves that had died, the
        newest first."""
        return ask(recoveries(*self.names, limit))
