"""Tell Sentry of every exception of a handler: `on_error` is one callable, whatever you use.

pip install sentry-sdk
SENTRY_DSN=… headrace worker errors_to_sentry:node
"""

import os

import sentry_sdk

import headrace

sentry_sdk.init(dsn=os.environ.get("SENTRY_DSN"))


def tell_sentry(error: BaseException, event: headrace.Claimed) -> None:
    with sentry_sdk.new_scope() as scope:
        scope.set_tag("event_type", event.type)
        scope.set_context("event", {"id": event.id, "attempt": event.attempt})
        scope.capture_exception(error)


node = headrace.Node("careful-worker", on_error=tell_sentry)


@node.on_event("order.*", max_retries=3)
async def handle(event: headrace.Claimed) -> None:
    raise ConnectionError("the bank does not answer")


if __name__ == "__main__":
    node.run()
