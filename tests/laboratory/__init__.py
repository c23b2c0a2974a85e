"""A laboratory of faults: real processes, real PostgreSQL, faults by a printed seed, and accounts of what became of
every event. `python -m tests.laboratory` runs the experiments; see experiments.py for what there is."""
