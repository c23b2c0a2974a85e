"""What grows with what: backlogs, routes, workers, publishers, payloads, queues; and what lasts: load, snapshots, idleness.

`make bench-scaling`, or `python -m bench.scaling`.
"""
