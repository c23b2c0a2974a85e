"""`headrace worker --reload`: a worker process that restarts when a source file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from headrace.cli.demo import lifeline
from headrace.cli.terminal.errors import TERMINATED
from headrace.cli.terminal.signals import stop_on_signals

PAUSE = 0.5  # seconds between two checks of the files
SKIPPED = {"__pycache__", "node_modules"}

Stamps = dict[str, int]


def run_again(arguments: list[str], folder: Path) -> int:
    """Run `headrace` with these arguments, again whenever a Python file in the folder changes,
    until a signal stops it; returns the exit code of the last run."""
    stop = threading.Event()
    with stop_on_signals(stop):
        while True:
            seen = stamps(folder)
            worker = _start(arguments)
            try:
                changed = _watch(folder, seen, worker, stop)
            finally:
                code = _end(worker)
            if not changed:
                # The signal came before the worker could handle it.
                return 0 if code in (-signal.SIGTERM, TERMINATED) else abs(code)
            _say(f"{', '.join(sorted(changed)[:3])} changed: restarting")


def stamps(folder: Path) -> Stamps:
    """The Python files below a folder, and when each was last written. Hidden folders and virtual
    environments are left out."""
    return dict(_stamps(folder))


def _stamps(folder: Path) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # the folder was just removed
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in SKIPPED:
                    yield from _stamps(Path(entry.path))
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat().st_mtime_ns
        except OSError:
            continue


def _start(arguments: list[str]) -> subprocess.Popen[bytes]:
    # In a process group of its own: Ctrl-C reaches this process only, which passes it on, once.
    program = "from headrace.cli import main; main()"
    return lifeline.start([sys.executable, "-c", program, *arguments], process_group=0)


def _watch(
    folder: Path, seen: Stamps, worker: subprocess.Popen[bytes], stop: threading.Event
) -> set[str]:
    """The changed files; none: a signal asks to stop, or the worker ended by itself."""
    told = False
    while not stop.wait(PAUSE):
        code = worker.poll()
        if code == 0:
            return set()
        if code is not None and not told:
            _say("waiting for a file to change")
            told = True
        changed = {name for name, _ in stamps(folder).items() ^ seen.items()}
        if changed:
            return {str(Path(name).relative_to(folder)) for name in changed}
    return set()


def _end(worker: subprocess.Popen[bytes]) -> int:
    """Wait for the worker to end; a second Ctrl-C signals it again, a third one kills it."""
    for _ in range(2):
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
        try:
            return worker.wait()
        except KeyboardInterrupt:
            continue
    worker.kill()
    return worker.wait()


def _say(words: str) -> None:
    print(f"headrace: {words}", file=sys.stderr, flush=True)
