"""The chart is well-formed, says what was measured, and no text in it lies over another."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from economics_chart import Panel, chart

_SVG = "{http://www.w3.org/2000/svg}"
names = st.sampled_from(
    ["rebuild, with the time", "rebuild", "the peer's", "freeze", "append <&> a diff", "promptkeel"]
)


@st.composite
def panels(draw: st.DrawFn) -> list[Panel]:
    rates = [0.0, 0.05, 0.2, 1.0]
    lines = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    values = st.lists(st.floats(0.76, 40.0), min_size=len(rates), max_size=len(rates))
    return [
        Panel(f"128-token steps, gpt-{number}.4", rates, {name: draw(values) for name in lines}, frozenset(lines[:1]))
        for number in range(draw(st.integers(1, 3)))
    ]


@given(panels())
def test_a_chart_is_well_formed_and_nothing_leaves_it_or_lies_over_a_text(found: list[Panel]) -> None:
    svg, labels, (width, height) = chart("Cost of prompts", found)
    root = ET.fromstring(svg)  # noqa: S314 - drawn right here
    assert sorted(each.text or "" for each in root.iter(f"{_SVG}text")) == sorted(label.text for label in labels)
    for left, top, right, bottom in (label.box for label in labels):
        assert min(left, top) >= 0
        assert right <= width
        assert bottom <= height
    for (one, first), (other, second) in itertools.combinations([(label.text, label.box) for label in labels], 2):
        apart = first[2] <= second[0] or second[2] <= first[0] or first[3] <= second[1] or second[3] <= first[1]
        assert apart, (one, other)
    points = [
        tuple(map(float, pair)) for line in root.iter(f"{_SVG}polyline") for pair in _pairs(line.attrib["points"])
    ]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def _pairs(points: str) -> list[tuple[str, str]]:
    return re.findall(r"([-0-9.]+),([-0-9.]+)", points)


def test_a_dearer_layout_stands_higher() -> None:
    svg, _, _ = chart("Cost", [Panel("marks", [0.0, 1.0], {"a": [1.0, 4.0]}, frozenset())])
    lines = [each.attrib["points"] for each in ET.fromstring(svg).iter(f"{_SVG}polyline")]  # noqa: S314
    coloured = next(line for line in lines if len(_pairs(line)) == 2 and _pairs(line)[0][1] != _pairs(line)[1][1])
    (_, low), (_, high) = _pairs(coloured)
    assert float(high) < float(low)
