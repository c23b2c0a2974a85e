"""The screen of `headrace up --demo`: a live picture, or lines without a terminal."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import headrace
from headrace.cli.demo.demo import WORKERS, Demonstration, Teller, play, second, stop_workers
from headrace.cli.demo.suggestions import suggestions
from headrace.cli.source import Source
from headrace.cli.terminal.signals import stop_on_signals

BARS = " ▁▂▃▄▅▆▇█"


def run(where: Source, seconds: float | None, url: str) -> None:
    """Show the demo until a signal comes, or the time is up."""
    console = Console()
    stop = threading.Event()
    with stop_on_signals(stop), headrace.connect(where.dsn) as queue, second(where, queue) as audit:
        show = Demonstration(where, queue, audit, url)
        logger = logging.getLogger("headrace")
        teller = Teller(show)
        logger.addHandler(teller)
        try:
            for place in range(1, WORKERS + 1):
                show.start_worker(place)
            if console.is_terminal:
                draw = partial(picture, show, console)
                with Live(console=console, refresh_per_second=8, screen=False, get_renderable=draw):
                    play(show, stop, seconds, lambda: None)
            else:
                introduce(show, console)
                play(show, stop, seconds, lambda: narrate(show, console))
        finally:
            logger.removeHandler(teller)
            stop_workers(show)
    console.print("Stopped. The queue keeps its events for the next start.")


def picture(show: Demonstration, console: Console) -> Group:
    """The live screen. A terminal cuts it at the bottom, so the log is as long as there is room."""
    with show.changed:
        head = Panel(
            figures(show), title="Headrace", subtitle="Ctrl-C stops it", border_style="cyan"
        )
        team = workers(show)
        used = sum(len(console.render_lines(one)) for one in (head, team))
        story = latest(show.story, console.height - used - 3, console.width - 4)
        log = Panel(Group(*story) if story else Text("…", style="dim"), title="Live log")
        return Group(head, team, log)


def latest(story: Sequence[Text], rows: int, width: int) -> list[Text]:
    """The newest lines that fit into so many rows; at least one."""
    found: list[Text] = []
    for line in reversed(story):
        rows -= -(-line.cell_len // max(width, 1))
        if rows < 0 and found:
            break
        found.insert(0, line)
    return found


def figures(show: Demonstration) -> Group:
    stats = show.stats
    grid = Table.grid(expand=True)
    numbers = {
        "ready": stats.ready,
        "in progress": stats.processing,
        "delayed": stats.delayed,
        "dead letters": stats.dead_letters,
        "completed": show.counts["completed"],
    }
    for _ in numbers:
        grid.add_column(justify="center")
    grid.add_row(*numbers)
    grid.add_row(*(Text(f"{number:,}", style="bold") for number in numbers.values()))
    return Group(
        Text.assemble("Dashboard: ", (show.url, "bold cyan underline")),
        Text(show.where.name, style="dim"),
        grid,
        Text(f"completed per second  {spark(list(show.completed)[:-1])}", style="green"),
        suggestions(show.url, show.where.data),
    )


def workers(show: Demonstration) -> Table:
    table = Table(expand=True, box=None)
    table.add_column("worker")
    table.add_column("state")
    table.add_column("in progress", justify="right")
    table.add_column("finished", justify="right")
    for worker in show.workers:
        state = (
            Text("alive", style="green")
            if worker.killed_at is None
            else Text("dead", style="bold red")
        )
        table.add_row(worker.name, state, str(len(worker.holds)), str(worker.done))
    return table


def spark(values: Sequence[int]) -> str:
    """Numbers as a row of bars."""
    top = max([*values, 1])
    return "".join(BARS[value * (len(BARS) - 1) // top] for value in values)


def introduce(show: Demonstration, console: Console) -> None:
    """Without a terminal: the first lines."""
    console.print(f"Headrace is up: {show.where.name}. Ctrl-C stops it.")
    console.print(f"Dashboard: {show.url}")
    console.print(suggestions(show.url, show.where.data), soft_wrap=True)


def narrate(show: Demonstration, console: Console) -> None:
    """Without a terminal: a line of figures per second, and the log as it grows."""
    stats = show.stats
    with show.changed:
        while show.story:
            console.print(show.story.popleft())
    console.print(
        f"ready {stats.ready}  in progress {stats.processing}  delayed {stats.delayed}  "
        f"dead {stats.dead_letters}  completed {show.counts['completed']}"
    )
