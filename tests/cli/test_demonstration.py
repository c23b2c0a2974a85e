"""What the demonstration says when somebody tries things while it runs."""

import headrace
from headrace.cli.demonstration import Demonstration, second
from headrace.cli.source import Source
from tests.database import Database


def test_a_queue_that_is_drained_or_removed_does_not_end_it_and_is_said_once(db: Database) -> None:
    where = Source(db.dsn, "a database", embedded=False)
    with headrace.connect(db.dsn) as queue, second(where, queue) as audit:
        show = Demonstration(where, queue, audit, "http://127.0.0.1:1")

        def beats() -> list[str]:
            show.story.clear()
            for beat in (1, 20):
                show.publish(beat)
                show.inspect()
            return [line.plain.split("  ", 1)[1] for line in show.story]

        assert beats() == []
        queue.drain()
        assert beats() == ["the queue 'main' is draining and takes no new events"]
        queue.resume()
        assert beats() == []
        audit.delete_queue("audit")
        assert beats() == ["there is no queue 'audit' in the namespace 'default'"]
