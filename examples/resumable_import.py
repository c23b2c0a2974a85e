"""A long import that goes on where it was when its worker is killed, restarted or stopped.

python resumable_import.py &                                   # twice, if you like; kill -9 one of them
python -c 'import headrace; headrace.connect().publish("import.requested", {"pages": 30})'
"""

import time

import headrace

node = headrace.Node("importer", lease=5)  # short, so that another worker takes over soon


@node.on_event("import.requested", max_retries=10)
def load(event: headrace.Claimed, context: headrace.Context) -> None:
    """Each page is saved with what it emits. A plain function has to look whether it should end."""
    done = context.progress or 0
    for page in range(done, event.payload["pages"]):
        if context.cancelled:  # the worker stops, and has handed the event back with what was saved
            return
        time.sleep(event.payload.get("seconds", 0.2))
        context.emit("page.loaded", {"page": page})
        context.save(page + 1)
        print(f"attempt {context.attempt}: page {page}", flush=True)


if __name__ == "__main__":
    node.run()
