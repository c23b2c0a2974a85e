"""Namespaces: made, changed, deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.engine.arguments import seconds
from headrace.engine.caller import Caller
from headrace.engine.json_values import encode
from headrace.engine.statement import Statement, Steps, ask
from headrace.model import Namespace, instant, told


def create_namespace(
    namespace: str, metadata: Mapping[str, Any] | None = None, actor: str | None = None
) -> Statement[bool]:
    return Statement(
        "select headrace.create_namespace(%s, %s::pg_catalog.jsonb, %s)",
        (namespace, encode(metadata or {}, "the metadata of a namespace").decode(), actor),
        lambda rows: rows[0][0],
    )


def namespaces() -> Statement[list[Namespace]]:
    return Statement(
        "select name, unhandled, metadata::pg_catalog.text, queues, pg_catalog.timestamptz_send(created_at), "
        "unhandled_after from headrace.namespaces()",
        (),
        lambda rows: [
            Namespace(name, unhandled, told(metadata), queues, instant(created_at), after)
            for name, unhandled, metadata, queues, created_at, after in rows
        ],
    )


def change_namespace(namespace: str, settings: dict[str, Any], actor: str) -> Statement[None]:
    return Statement(
        "select headrace.change_namespace(%s, %s::pg_catalog.jsonb, %s)",
        (namespace, encode(settings, "the settings").decode(), actor),
        lambda rows: None,
    )


def delete_namespace(namespace: str, with_deliveries: bool, actor: str) -> Statement[None]:
    return Statement(
        "select headrace.delete_namespace(%s, %s::boolean, %s)",
        (namespace, with_deliveries, actor),
        lambda rows: None,
    )


class NamespaceVerbs(Caller):
    """Verbs about namespaces."""

    def namespaces(self) -> Steps[list[Namespace]]:
        """The namespaces of this database, by name."""
        return ask(namespaces())

    def create_namespace(
        self,
        name: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        actor: str | None = None,
    ) -> Steps[bool]:
        """Make a namespace with its queue `main`. False: it existed. `connect` makes its own."""
        return ask(create_namespace(name, metadata, actor or self.worker))

    def change_namespace(
        self, name: str, *, actor: str | None = None, **settings: Any
    ) -> Steps[None]:
        """Change the settings of a namespace that are named; None brings a default back: unhandled
        ("keep", or "dead_letter"), unhandled_after (a duration) and metadata."""
        after = settings.get("unhandled_after")
        if after is not None:
            settings = settings | {"unhandled_after": seconds(after, "unhandled_after")}
        return (yield from ask(change_namespace(name, settings, actor or self.worker)))

    def delete_namespace(
        self, name: str, *, with_deliveries: bool = False, actor: str | None = None
    ) -> Steps[None]:
        """Delete a namespace with its queues, its events and its log. NamespaceNotEmpty: it has
        deliveries or dead letters; `with_deliveries` they are lost with it."""
        return ask(delete_namespace(name, with_deliveries, actor or self.worker))
