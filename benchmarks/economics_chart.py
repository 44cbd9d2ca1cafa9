"""The chart of the economics benchmark, as SVG without any library: what each layout costs by the rate of writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

import attrs

FONT: Final = 12
_PANEL: Final = (250, 250)
_LEFT, _TOP, _GAP, _BOTTOM = 64, 64, 40, 56
_LEGEND: Final = 214
_TICKS: Final = (1, 1.5, 2, 3, 5, 8, 12, 20)
# Told apart by people who do not see every colour (after Okabe and Ito), and by their shapes.
_COLOURS: Final = ("#d55e00", "#e69f00", "#cc79a7", "#999999", "#56b4e9", "#009e73", "#000000")
_SHAPES: Final = ("square", "diamond", "triangle", "cross", "ring", "disc", "bar")


@attrs.frozen
class Panel:
    """What one part of the chart shows.

    Attributes:
        title: what stands above it.
        rates: the places along its width.
        lines: by the name of each line, its height at each of them; 1 is the bottom.
        dashed: the names of the lines that are dashed.
    """

    title: str
    rates: Sequence[float]
    lines: Mapping[str, Sequence[float]]
    dashed: frozenset[str]


@attrs.frozen
class Label:
    """A piece of text in the chart.

    Attributes:
        x: where it is anchored.
        y: its baseline.
        text: what it says.
        anchor: which part of it is at ``x``: ``start``, ``middle`` or ``end``.
        size: of its letters.
    """

    x: float
    y: float
    text: str
    anchor: str = "start"
    size: int = FONT

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom, as wide as letters of a common font get."""
        width = 0.62 * self.size * len(self.text)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.y - 0.8 * self.size, left + width, self.y + 0.25 * self.size

    def svg(self) -> str:
        """The element."""
        return (
            f'<text x="{self.x:.1f}" y="{self.y:.1f}" text-anchor="{self.anchor}" font-size="{self.size}">'
            f"{escape(self.text)}</text>"
        )


def chart(title: str, panels: Sequence[Panel]) -> tuple[str, list[Label], tuple[float, float]]:
    """The SVG, every text in it, and its width and height."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    height_of_all = _TOP + _PANEL[1] + _BOTTOM
    heading = Label(_LEFT, 24, title, size=15)
    width = max(_LEFT + len(panels) * (_PANEL[0] + _GAP) + _LEGEND, math.ceil(heading.box[2]) + 10)
    top = max((value for panel in panels for line in panel.lines.values() for value in line), default=1.0)
    scale = _Scale(max(top, 1.5) * 1.05)
    labels = [heading]
    parts: list[str] = []
    for number, panel in enumerate(panels):
        left = _LEFT + number * (_PANEL[0] + _GAP)
        parts.extend(_axes(left, scale))
        labels.extend(_axis_labels(left, panel, scale, first=number == 0))
        for name, values in panel.lines.items():
            parts.extend(_line(left, names.index(name), values, scale, dashed=name in panel.dashed))
    dashed = {name for panel in panels for name in panel.dashed}
    for place, name in enumerate(names):
        left, y = _LEFT + len(panels) * (_PANEL[0] + _GAP), _TOP + 10 + 24 * place
        parts.append(_stroke([(left, y), (left + 26, y)], _COLOURS[place % 7], dashed=name in dashed))
        parts.append(_shape(place, left + 13, y))
        labels.append(Label(left + 34, y + 4, name))
    body = "\n".join([*parts, *(label.svg() for label in labels)])
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height_of_all}" '
        f'viewBox="0 0 {width} {height_of_all}" font-family="Helvetica, Arial, sans-serif" role="img">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{width}" height="{height_of_all}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )
    return svg, labels, (width, height_of_all)


@attrs.frozen
class _Scale:
    most: float

    def y(self, value: float) -> float:
        return _TOP + _PANEL[1] * (1 - math.log(max(value, 0.75) / 0.75) / math.log(self.most / 0.75))

    def ticks(self) -> list[float]:
        return [tick for tick in _TICKS if tick <= self.most]


def _axes(left: float, scale: _Scale) -> Iterator[str]:
    right, bottom = left + _PANEL[0], _TOP + _PANEL[1]
    for tick in scale.ticks():
        colour = "#888888" if tick == 1 else "#dddddd"
        yield _stroke([(left, scale.y(tick)), (right, scale.y(tick))], colour, width=1)
    yield _stroke([(left, _TOP), (left, bottom), (right, bottom)], "#444444", width=1)


def _axis_labels(left: float, panel: Panel, scale: _Scale, *, first: bool) -> Iterator[Label]:
    yield Label(left + _PANEL[0] / 2, _TOP - 14, panel.title, "middle")
    bottom = _TOP + _PANEL[1]
    for place, rate in enumerate(panel.rates):
        yield Label(_x(left, place, len(panel.rates)), bottom + 18, f"{rate:g}", "middle")
    yield Label(left + _PANEL[0] / 2, bottom + 38, "writes per turn", "middle")
    if first:
        for tick in scale.ticks():
            yield Label(left - 8, scale.y(tick) + 4, f"{tick:g}×", "end")


def _x(left: float, place: int, count: int) -> float:
    return left + _PANEL[0] * (place + 0.5) / count


def _line(left: float, number: int, values: Sequence[float], scale: _Scale, *, dashed: bool) -> Iterator[str]:
    points = [(_x(left, place, len(values)), scale.y(value)) for place, value in enumerate(values)]
    yield _stroke(points, _COLOURS[number % 7], dashed=dashed)
    for x, y in points:
        yield _shape(number, x, y)


def _stroke(points: Sequence[tuple[float, float]], colour: str, *, width: float = 2, dashed: bool = False) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def _shape(number: int, x: float, y: float) -> str:
    colour, shape = _COLOURS[number % 7], _SHAPES[number % 7]
    if shape in ("disc", "ring"):
        fill = colour if shape == "disc" else "#ffffff"
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="{colour}" stroke-width="2"/>'
    corners = {
        "square": [(-4, -4), (4, -4), (4, 4), (-4, 4)],
        "diamond": [(0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)],
        "triangle": [(0, -5.5), (5, 4), (-5, 4)],
        "cross": [(-4, -4), (4, 4), (0, 0), (-4, 4), (4, -4), (0, 0)],
        "bar": [(-6, -1.5), (6, -1.5), (6, 1.5), (-6, 1.5)],
    }[shape]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{path}" fill="{colour}" stroke="{colour}" stroke-width="1.5"/>'
