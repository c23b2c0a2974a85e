"""Publishes on some connections at once as fast as it can, one by one or some together, until it is told to stop."""

import sys
import threading

import headrace
from bench.payloads import TYPE, payloads
from bench.workers.speaking import closed, said, wait_for_go

DSN = "application_name=bench"  # the rest is in the environment
KEPT = 1_000


def publish(queue: headrace.EventQueue, together: int, over: threading.Event) -> int:
    given = payloads(KEPT)
    count = 0
    while not over.is_set():
        if together == 1:
            queue.publish(TYPE, given[count % KEPT])
        else:
            at = count % KEPT
            queue.publish_many([(TYPE, payload) for payload in given[at : at + together]])
        count += together
    return count


def main(connections: int, together: int) -> None:
    over = threading.Event()
    counts: list[int] = []
    queues = [headrace.connect(DSN, pool_size=1) for _ in range(connections)]
    threads = [
        threading.Thread(target=lambda queue=queue: counts.append(publish(queue, together, over)))
        for queue in queues
    ]
    wait_for_go()
    for thread in threads:
        thread.start()
    sys.stdin.readline()
    over.set()
    for thread in threads:
        thread.join()
    said("published", sum(counts))
    closed()
    for queue in queues:
        queue.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
