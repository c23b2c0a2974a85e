"""Access: which namespaces a role of the database is bound to."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.caller import Caller
from headrace.engine.statement import Statement, Steps, ask, done
from headrace.errors import InvalidInput
from headrace.model import BoundRole, instant


def bind_role(role: str, namespaces: list[str], actor: str) -> Statement[None]:
    return done("headrace.bind_role(%s, %s::pg_catalog.text[], %s)", role, namespaces, actor)


def unbind_role(role: str, actor: str) -> Statement[bool]:
    return Statement("select headrace.unbind_role(%s, %s)", (role, actor), lambda rows: rows[0][0])


def bound_roles() -> Statement[list[BoundRole]]:
    return Statement(
        "select role, namespaces, pg_catalog.timestamptz_send(bound_at), bound_by "
        "from headrace.bound_roles()",
        (),
        lambda rows: [
            BoundRole(role, tuple(namespaces), instant(at), by) for role, namespaces, at, by in rows
        ],
    )


class AccessVerbs(Caller):
    """Verbs about roles of the database."""

    def bind_role(
        self, role: str, namespaces: Sequence[str], *, actor: str | None = None
    ) -> Steps[None]:
        """Bind a role of the database to namespaces: in others it can do and see nothing, whatever
        it is granted."""
        if isinstance(namespaces, str):
            raise InvalidInput("a role is bound to a list of namespaces")
        return ask(bind_role(role, list(namespaces), actor or self.worker))

    def unbind_role(self, role: str, *, actor: str | None = None) -> Steps[bool]:
        """Let a role use every namespace again. False: it was not bound."""
        return ask(unbind_role(role, actor or self.worker))

    def bound_roles(self) -> Steps[list[BoundRole]]:
        """The roles that are bound to namespaces, by name."""
        return ask(bound_roles())
