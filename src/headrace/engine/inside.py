"""Ends and progress inside a transaction of a handler's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.engine.arguments import array
from headrace.engine.json_values import encode
from headrace.engine.results import in_common, milliseconds, other_end
from headrace.engine.statement import Statement
from headrace.errors import InvalidPayload
from headrace.model import Claimed, Completed, Result

# The function is called with what the mark's row says, so it is not called without that row.
_FINISH_INSIDE = """\
with here as materialized (
    select %s::pg_catalog.text as namespace where pg_catalog.current_setting('headrace.attempt', true) operator(pg_catalog.=) %s)
select null as verdict, null::int as item, null as action from here
union all
select f.verdict, f.item, f.action
from here, lateral headrace.finish(
    here.namespace, %s, %s::bigint[], %s::int[], null, %s::int[], others => %s::pg_catalog.jsonb,
    lease_tokens => %s::pg_catalog.text[]) f"""


_SAVE_INSIDE = """\
with here as materialized (
    select %s::pg_catalog.text as namespace where pg_catalog.current_setting('headrace.attempt', true) operator(pg_catalog.=) %s)
select null, saved.* from here, lateral headrace.save_progress(
    here.namespace, %s::bigint, %s::int, %s::pg_catalog.jsonb, %s, lease_token => %s) saved"""


class Inside(NamedTuple):
    """The result of a completion in a transaction of a handler's."""

    is_ours: bool
    """The transaction is still the one that was begun for it."""
    lost: list[int]
    """Events whose attempts were not the current ones."""
    has_failed: bool = False
    """An attempt that was to be snoozed counts as a failure."""


def complete_inside(
    namespace: str, queue: str, mark: str, claims: Sequence[Claimed], ms: int
) -> Statement[Inside]:
    """Complete held attempts in the transaction that was marked as theirs, and nothing in any
    other."""
    if len(claims) > 1:
        return _finish_all_inside(namespace, queue, mark, claims, ms, None)
    (claim,) = claims
    return Statement(
        "select headrace.complete_held(%s, %s, %s::bigint, %s::int, %s::int, null, %s) "
        "where pg_catalog.current_setting('headrace.attempt', true) operator(pg_catalog.=) %s",
        (namespace, queue, claim.id, claim.attempt, milliseconds(ms), claim.lease_token, mark),
        lambda rows: Inside(bool(rows), [claim.id for (held,) in rows if not held]),
    )


# driver.session_reset compares these values at the end of a handler: `reset all` does not undo
# them, or too late for the next transaction.
SESSION_STATE = (
    "current_user, session_user, pg_catalog.pg_my_temp_schema(), "
    "pg_catalog.current_setting('default_transaction_isolation'), "
    "pg_catalog.current_setting('default_transaction_read_only'), "
    "pg_catalog.current_setting('default_transaction_deferrable'), "
    "pg_catalog.current_setting('statement_timeout'), "
    "pg_catalog.current_setting('idle_session_timeout')"
)


NOT_HELD, ELSEWHERE = "not held", "elsewhere"  # which are no booleans


_COMPLETE_OR_FAIL = f"""\
select (case when (pg_catalog.current_setting('headrace.attempt', true) operator(pg_catalog.=) %s) is not true then '{ELSEWHERE}'
             when headrace.complete_held(%s, %s, %s::bigint, %s::int, %s::int, null, %s) then 'true'
             else '{NOT_HELD}' end)::boolean,
       {SESSION_STATE}"""


def complete_or_fail(
    namespace: str, queue: str, mark: str, claim: Claimed, ms: int
) -> Statement[bool]:
    """The same for one attempt, with an error where it cannot be done: NOT_HELD, or ELSEWHERE,
    cannot be cast to boolean. So a COMMIT can be sent with it, which is not executed after an
    error. Its row has SESSION_STATE, too."""
    proof = (claim.id, claim.attempt, milliseconds(ms), claim.lease_token)
    params = (mark, namespace, queue, *proof)
    return Statement(_COMPLETE_OR_FAIL, params, lambda rows: bool(rows[0][0]))


def finish_inside(
    namespace: str, queue: str, mark: str, results: Sequence[Result], ms: int
) -> Statement[Inside]:
    """The same for attempts some of which are snoozed."""
    claims: list[Claimed] = [result.claimed for result in results]  # type: ignore[misc]
    others = {
        str(item): other_end(result)
        for item, result in enumerate(results, 1)
        if type(result) is not Completed
    }
    return _finish_all_inside(
        namespace, queue, mark, claims, ms, encode(others, "a result").decode()
    )


def _finish_all_inside(
    namespace: str, queue: str, mark: str, claims: Sequence[Claimed], ms: int, others: str | None
) -> Statement[Inside]:
    return Statement(
        _FINISH_INSIDE,
        (
            namespace,
            mark,
            queue,
            array([claim.id for claim in claims]),
            array([claim.attempt for claim in claims]),
            array([milliseconds(ms)] * len(claims)),
            others,
            in_common([claim.lease_token for claim in claims]),
        ),
        lambda rows: Inside(
            bool(rows),
            [claims[item - 1].id for verdict, item, _ in rows if verdict not in (None, "counted")],
            any(action in ("FAILED", "COMPLETED_WITH_ERRORS") for *_, action in rows),
        ),
    )


def save_inside(
    namespace: str, queue: str, mark: str, claim: Claimed, progress: Any
) -> Statement[Inside]:
    """Save progress in the transaction that was marked as the attempt's, and nothing in any
    other."""
    value = encode(progress, "the progress", InvalidPayload).decode()
    return Statement(
        _SAVE_INSIDE,
        (namespace, mark, claim.id, claim.attempt, value, queue, claim.lease_token),
        lambda rows: Inside(bool(rows), []),
    )
