"""`headrace worker --reload`: the worker in a process of its own, which is started anew when a source file changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from headrace.cli import lifeline
from headrace.cli.failing import TERMINATED
from headrace.cli.signals import stop_on_signals

PAUSE = 0.5  # seconds between two looks at the files
SKIPPED = {"__pycache__", "node_modules"}

Stamps = dict[str, int]


def run(arguments: list[str], folder: Path) -> int:
    """Run `headrace` with these arguments, again whenever Python in the folder changes, until told to stop; then the
    exit code of the last one."""
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
                # It had not even begun.
                return 0 if code in (-signal.SIGTERM, TERMINATED) else abs(code)
            _say(f"{', '.join(sorted(changed)[:3])} changed: starting again")


def stamps(folder: Path) -> Stamps:
    """The Python files below a folder, and when each was last written. Hidden folders, and those of virtual
    environments, are left out."""
    return dict(_stamps(folder))


def _stamps(folder: Path) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # it has just been removed
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
    # In a process group of its own: Ctrl-C is for this process, which passes it on, once.
    program = "from headrace.cli import main; main()"
    return lifeline.start([sys.executable, "-c", program, *arguments], process_group=0)


def _watch(
    folder: Path, seen: Stamps, worker: subprocess.Popen[bytes], stop: threading.Event
) -> set[str]:
    """The files that have changed; none: it is to stop, or the worker was told to end."""
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
    """Let it end in its own time, unless somebody presses Ctrl-C again, and again."""
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
