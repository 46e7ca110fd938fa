"""Plots: well-formed, within their frame, and calm about constant, missing and absent data."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.evaluation.svg import WIDTH, Mark, Whisker, lines, whiskers

number = st.floats(-1e6, 1e6, allow_nan=False)
SVG = "{http://www.w3.org/2000/svg}"


@given(st.lists(st.tuples(number, number), max_size=6))
def test_lines_are_well_formed_and_stay_inside(points: list[tuple[float, float]]) -> None:
    root = ElementTree.fromstring(lines("t", {"a<b": points}, ["a<b"], "x", str, str))
    for line in root.iter(f"{SVG}polyline"):
        for pair in line.get("points", "").split():
            x, y = map(float, pair.split(","))
            assert -1 <= x <= WIDTH + 1
            assert 0 <= y <= float(root.get("viewBox", "").split()[3])


@given(number, st.floats(0, 1e3))
def test_whiskers_are_well_formed_and_stay_inside(value: float, half: float) -> None:
    item = Whisker("policy & co", value, value - half, value + half, "words")
    root = ElementTree.fromstring(whiskers("t", [item], str, zero=True))
    (dot,) = root.iter(f"{SVG}circle")
    assert 0 <= float(dot.get("cx", "nan")) <= WIDTH


def test_a_figure_without_a_number_is_drawn_as_its_words() -> None:
    plot = whiskers("t", [Whisker("dpo", None, None, None, "0 accepted results")], str)
    assert "0 accepted results" in plot
    assert "<circle" not in plot


def test_points_that_are_not_finite_are_left_out() -> None:
    plot = lines("t", {"a": [(0, 1), (1, math.nan), (2, math.inf), (3, 2)]}, ["a"], "x", str, str)
    assert "nan" not in plot
    assert "inf" not in plot


@pytest.mark.parametrize("names", [["other", "a"], []])
def test_a_series_keeps_the_colour_of_its_policy(names: list[str]) -> None:
    plot = lines("t", {"a": [(0, 1), (1, 2)]}, names, "x", str, str)
    assert ('class="line s1"' in plot) == bool(names)


def bounds(text: ElementTree.Element, letter: float = 6.6) -> tuple[float, float]:
    """Where a text begins and ends."""
    x, width = float(text.get("x", "nan")), letter * len(text.text or "")
    before = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor", "start")]
    return x - before * width, x + (1 - before) * width


def test_every_word_of_a_plot_stays_inside_it() -> None:
    items = [
        Whisker("sft", 1.0, 0.9, 1.0, "100.0 % [90.0, 100.0]"),
        Whisker("dpo", None, None, None, "never: an accepted run costs no less than the incumbent's, " * 4),
    ]
    drawn = [
        whiskers("t", items, str, mark=Mark(1.0, "worth shipping: +3.0 points")),
        lines("t", {"a": [(0, 0), (9, 9)]}, ["a"], "accepted runs", str, str, [Mark(0.0, "0 accepted runs", 0.0)]),
    ]
    for plot in drawn:
        for text in ElementTree.fromstring(plot).iter(f"{SVG}text"):
            left, right = bounds(text)
            assert left >= -1, text.text
            assert right <= WIDTH + 1, text.text


def test_a_plot_tells_its_figures_to_who_cannot_see_it() -> None:
    root = ElementTree.fromstring(whiskers("Latency", [Whisker("sft", 1.0, 0.9, 1.0, "1.00 s")], str))
    assert root.get("aria-label") == "Latency. sft: 1.00 s"


def test_a_point_outside_the_axis_is_not_pointed_out() -> None:
    plot = lines("t", {"a": [(0, 0), (9, 9)]}, ["a"], "x", str, str, [Mark(20.0, "far", 20.0), Mark(5.0, "here", 5.0)])
    assert "here" in plot
    assert "far" not in plot


def test_a_series_of_one_point_is_a_dot() -> None:
    assert lines("t", {"a": [(1, 2)]}, ["a"], "x", str, str).count("<circle") == 1


def test_names_of_a_legend_stand_beside_each_other_and_wrap_inside_the_plot() -> None:
    names = [f"candidate {at}" for at in range(6)]
    root = ElementTree.fromstring(lines("t", {name: [(0, 1), (1, 2)] for name in names}, names, "x", str, str))
    placed = [text for text in root.iter(f"{SVG}text") if text.text in names]
    assert len({text.get("y") for text in placed}) < len(names)
    assert all(float(text.get("x", "nan")) + 8 * len(text.text or "") <= WIDTH for text in placed)
    assert max(float(text.get("y", "nan")) for text in placed) <= float(root.get("viewBox", "").split()[3])
