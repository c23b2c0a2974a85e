"""Charts as SVG: lines with their names at their ends, and bars; on a ground of their own, so that any page can show them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH = 760
LEFT = 62
PANEL, GAP = 150, 46
LINE = 15  # between two names at the ends of lines
COLOURS = ("a", "b", "c", "d", "e")
LETTER = 6.6  # wide, so that names fit

STYLE = """\
svg { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.ground { fill: #fbfcfc; stroke: #d8e0e2; }
text { fill: #47565b; } .title { fill: #16282e; font-weight: 600; }
.grid { stroke: #e3e9ea; } .goal { stroke: #16282e; stroke-width: 2; } .held { fill: #f1e6d3; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; } .spread { stroke-width: 1; opacity: .55; }
.a { stroke: #0d7f8f; fill: #0d7f8f; } .b { stroke: #b8531a; fill: #b8531a; } .c { stroke: #6b4fa0; fill: #6b4fa0; }
.d { stroke: #47761f; fill: #47761f; } .e { stroke: #8a8f91; fill: #8a8f91; }
text.a, text.b, text.c, text.d, text.e { stroke: none; } .line { fill: none !important; }
@media (prefers-color-scheme: dark) {
.ground { fill: #121c20; stroke: #2a3a40; } text { fill: #a9b8bd; } .title { fill: #e6eef0; }
.grid { stroke: #24343a; } .goal { stroke: #e6eef0; } .held { fill: #33291a; }
.a { stroke: #4fc3d4; fill: #4fc3d4; } .b { stroke: #eb9a62; fill: #eb9a62; } .c { stroke: #b49be6; fill: #b49be6; }
.d { stroke: #97c76a; fill: #97c76a; } .e { stroke: #7f8b90; fill: #7f8b90; }
}"""

Points = list[tuple[float, float, float, float]]
"""x, the median, the least, the most; a scale is made for medians, and what goes beyond ends at its edge."""


@dataclass(frozen=True)
class Line:
    name: str
    points: Points
    colour: str = "a"


@dataclass(frozen=True)
class Panel:
    """One measure over what grows."""

    title: str
    lines: list[Line]
    log: bool = False
    dots: bool = True
    shade: tuple[float, float] | None = None


@dataclass(frozen=True)
class Axis:
    """Where on the line of what grows something is, and what is written below it."""

    ticks: list[tuple[float, str]]
    place: Callable[[float], float] = field(repr=False)
    """From 0 to 1."""


def even(places: Sequence[float], name: Callable[[float], str]) -> Axis:
    """Every place as far from the next, whatever lies between."""
    order = {x: number for number, x in enumerate(places)}
    last = max(len(places) - 1, 1)
    return Axis([(x, name(x)) for x in places], lambda x: order[x] / last)


def linear(places: Sequence[float], name: Callable[[float], str], low: float = 0) -> Axis:
    high = max(places)
    return Axis([(x, name(x)) for x in places], lambda x: (x - low) / (high - low or 1))


def curves(title: str, panels: Sequence[Panel], axis: Axis, below: str) -> str:
    height = 44 + len(panels) * (PANEL + GAP) + 2
    longest = max((len(line.name) for panel in panels for line in panel.lines), default=0)
    wide = WIDTH - LEFT - 28 - LETTER * longest
    drawn = [
        part
        for number, panel in enumerate(panels)
        for part in _panel(panel, axis, wide, 44 + number * (PANEL + GAP))
    ]
    drawn.append(_text(LEFT, height - 10, below))
    return _picture(title, height, drawn)


def bars(title: str, rows: Sequence[tuple[str, float, float | None, str, str]], most: float) -> str:
    """Rows of (name, value, goal, what is written behind it, class); what is longer than `most` ends there."""
    left, step = min(LETTER * max((len(row[0]) for row in rows), default=0) + 26, WIDTH / 2), 22
    width = WIDTH - left - 110
    height = 50 + step * len(rows)
    drawn = []
    for number, (name, value, goal, told, kind) in enumerate(rows):
        y = 40 + number * step
        length = max(min(value / most, 1) * width, 1)
        drawn.append(_text(left - 10, y + 11, name, "end"))
        drawn.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{y}" width="{length:.1f}" height="14" rx="2"/>'
        )
        if goal is not None:
            x = left + min(goal / most, 1) * width
            drawn.append(
                f'<line class="goal" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 2}" y2="{y + 16}"/>'
            )
        drawn.append(
            _text(
                left + max(length, 0 if goal is None else min(goal / most, 1) * width) + 8,
                y + 11,
                told,
            )
        )
    return _picture(title, height, drawn)


def _panel(panel: Panel, axis: Axis, wide: float, top: float) -> list[str]:
    lines = [line for line in panel.lines if line.points]
    values = [point[1] for line in lines for point in line.points]
    scale = _log_scale(values) if panel.log else _scale(values)

    def at(x: float) -> float:
        return LEFT + axis.place(x) * wide

    def up(value: float) -> float:
        return top + 22 + (1 - min(scale.place(value), 1)) * (PANEL - 22)

    drawn = [_text(LEFT - 46, top + 8, panel.title, kind="title")]
    if panel.shade is not None:
        begin, end = map(at, panel.shade)
        drawn.append(
            f'<rect class="held" x="{begin:.1f}" y="{top + 22}" width="{end - begin:.1f}" height="{PANEL - 22}"/>'
        )
    for value, name in scale.ticks:
        drawn.append(
            f'<line class="grid" x1="{LEFT}" x2="{LEFT + wide}" y1="{up(value):.1f}" y2="{up(value):.1f}"/>'
        )
        drawn.append(_text(LEFT - 8, up(value) + 4, name, "end"))
    drawn += [_text(at(x), top + PANEL + 17, name, "middle") for x, name in axis.ticks]
    ends = _apart([up(line.points[-1][1]) for line in lines])
    for line, end in zip(lines, ends, strict=True):
        path = " ".join(f"{at(x):.1f},{up(value):.1f}" for x, value, *_ in line.points)
        drawn.append(f'<polyline class="line {line.colour}" points="{path}"/>')
        if panel.dots:
            for x, value, least, most in line.points:
                drawn.append(
                    f'<line class="spread {line.colour}" x1="{at(x):.1f}" x2="{at(x):.1f}" y1="{up(least):.1f}" y2="{up(most):.1f}"/>'
                )
                drawn.append(
                    f'<circle class="{line.colour}" cx="{at(x):.1f}" cy="{up(value):.1f}" r="3"/>'
                )
        drawn.append(_text(at(line.points[-1][0]) + 10, end + 4, line.name, kind=line.colour))
    return drawn


def _apart(heights: list[float]) -> list[float]:
    """So far from each other that names can be read, in their order."""
    placed = dict.fromkeys(range(len(heights)), 0.0)
    last = -math.inf
    for number in sorted(placed, key=lambda number: heights[number]):
        last = placed[number] = max(heights[number], last + LINE)
    return [placed[number] for number in range(len(heights))]


def _scale(values: list[float]) -> Axis:
    most = max([*values, 0.0]) or 1.0
    step = _step(most)
    count = math.ceil(most / step - 1e-9)
    high = count * step
    return Axis([(n * step, short(n * step)) for n in range(count + 1)], lambda value: value / high)


def _step(most: float) -> float:
    """A round number of which at most four cover it."""
    unit = 10.0 ** math.floor(math.log10(most / 4))
    return next(unit * factor for factor in (1, 2, 2.5, 5, 10) if most / (unit * factor) <= 4)


def _log_scale(values: list[float]) -> Axis:
    known = [value for value in values if value > 0] or [1.0]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    high = max(high, low + 1)
    ticks = [(10.0**n, short(10.0**n)) for n in range(low, high + 1)]
    return Axis(ticks, lambda value: (math.log10(max(value, 10.0**low)) - low) / (high - low))


def short(value: float) -> str:
    """10 k, 2.5 M."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if name == 'k' else size):,.4g} {name}"
    return f"{value:,.4g}"


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}"' + (f' text-anchor="{anchor}"' if anchor != "start" else "")
    return (
        f"<text {where}{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{escape(text)}</text>"
    )


def _picture(title: str, height: float, drawn: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" role="img">'
    ground = (
        f'<rect class="ground" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1:g}" rx="6"/>'
    )
    named = f'<text class="title" x="16" y="24" style="font-size: 14px">{escape(title)}</text>'
    return "\n".join(
        [
            head,
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            ground,
            named,
            *drawn,
            "</svg>",
            "",
        ]
    )
