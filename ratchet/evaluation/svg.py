"""Two plots as inline SVG: estimates with intervals, and lines; neither needs a script or a request.

Colours are CSS classes (`s0` to `s5`), so that the page's light and dark themes apply; lines differ by their dashes
too. Every plot carries its words as a label for screen readers. Plots are drawn for a width at which their text can
still be read on a telephone. All texts come in the reader's language.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, SIDE, ROW = 420, 16, 50
LETTER = 7.0
"""Mean width of a letter of the small text."""
COLOURS = 6
Number = Callable[[float], str]


class Whisker(NamedTuple):
    """A labelled estimate; `value` None is shown as `words` in the place of the mark."""

    label: str
    value: float | None
    low: float | None
    high: float | None
    words: str
    colour: int = 0


class Mark(NamedTuple):
    """A place that the plot points out: a value on an axis, or a point of a line, with words."""

    x: float
    words: str
    y: float | None = None
    colour: int = 0


def whiskers(title: str, items: Sequence[Whisker], number: Number, zero: bool = False, mark: Mark | None = None) -> str:
    """Plot estimates with intervals: a line of words, and under it the mark with its interval.

    Args:
        title: what is plotted, in words.
        items: from top to bottom.
        number: how a tick reads.
        zero: draw a line at 0, for differences.
        mark: a value to compare with, as a dashed line with its words below the axis.
    """
    seen = [x for item in items for x in (item.value, item.low, item.high) if x is not None]
    low, high, ticks = _axis([0.0, *seen, *([mark.x] if mark else [])])
    bottom = 6 + ROW * len(items)

    def x_of(value: float) -> float:
        return SIDE + (value - low) / (high - low) * (WIDTH - 2 * SIDE)

    body = [_grid(x_of(tick), 6, bottom, number(tick), strong=zero and tick == 0) for tick in ticks]
    height = bottom + 26
    if mark:
        x = x_of(mark.x)
        body.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{bottom + 26}" class="mark"/>')
        body.append(_text(_inside(x, mark.words), bottom + 40, mark.words, "middle", "muted"))
        height += 22
    for index, item in enumerate(items):
        top = 6 + ROW * index
        body.append(_text(0, top + 16, item.label, "start", "strong"))
        if item.value is None:
            body += [
                _text(0, top + 33 + 15 * at, part, "start", "muted") for at, part in enumerate(_wrapped(item.words))
            ]
            continue
        body.append(_text(WIDTH, top + 16, item.words, "end", ""))
        y, colour = top + 31, f"s{item.colour % COLOURS}"
        if item.low is not None and item.high is not None:
            body.append(
                f'<line x1="{x_of(item.low):.1f}" x2="{x_of(item.high):.1f}" y1="{y}" y2="{y}" class="bar {colour}"/>'
            )
        body.append(f'<circle cx="{x_of(item.value):.1f}" cy="{y}" r="6" class="dot {colour}"/>')
    told = "; ".join(f"{item.label}: {item.words}" for item in items)
    return _svg(f"{title}. {told}", height, body)


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    names: Sequence[str],
    x_label: str,
    x_number: Number,
    y_number: Number,
    marks: Sequence[Mark] = (),
) -> str:
    """Plot series over a common x axis, each labelled in a legend under the plot.

    Args:
        title: what is plotted, in words.
        series: points by name; points that are not finite are left out.
        names: all names that share the page's colours, in their order; a series keeps its colour in every plot.
        x_label: what the x axis counts.
        x_number: how a tick of x reads.
        y_number: how a tick of y reads.
        marks: points to be pointed out.
    """
    clean = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)] for name, points in series.items()
    }
    points = [point for found in clean.values() for point in found]
    x_low, x_high, x_ticks = _axis([x for x, _ in points] or [0.0, 1.0])
    y_low, y_high, y_ticks = _axis([0.0, *(y for _, y in points)])
    left = 12 + LETTER * max(len(y_number(tick)) for tick in y_ticks)
    top, plot, right = 10, 200, WIDTH - SIDE
    # Names stand beside each other in columns as wide as the longest.
    column = 44 + 8 * max((len(name) for name in clean), default=0)
    across = max(1, int((WIDTH - left) // column))
    legend = 20 * -(-len(clean) // across)

    def place(x: float, y: float) -> tuple[float, float]:
        across_ = left + (x - x_low) / (x_high - x_low) * (right - left)
        return across_, top + plot - (y - y_low) / (y_high - y_low) * plot

    body = [_grid(place(tick, 0)[0], top, top + plot, x_number(tick)) for tick in x_ticks]
    for tick in y_ticks:
        y = place(x_low, tick)[1]
        body.append(f'<line x1="{left:.1f}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        body.append(_text(left - 8, y + 4, y_number(tick), "end", "muted"))
    body.append(_text(right, top + plot + 38, x_label, "end", "muted"))
    for index, (name, found) in enumerate(clean.items()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in found))
        colour = f"s{(list(names).index(name) if name in names else len(names) + index) % COLOURS}"
        body.append(f'<polyline points="{path}" class="line {colour}"/>')
        if len(found) == 1:
            ((x, y),) = (place(*point) for point in found)
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="dot {colour}"/>')
        x, y = left + column * (index % across), top + plot + 60 + 20 * (index // across)
        body.append(f'<line x1="{x:.1f}" x2="{x + 22:.1f}" y1="{y - 5:.1f}" y2="{y - 5:.1f}" class="line {colour}"/>')
        body.append(_text(x + 28, y, name, "start", ""))
    for one in marks:
        if one.y is not None and x_low <= one.x <= x_high:
            x, y = place(one.x, one.y)
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" class="ring s{one.colour % COLOURS}"/>')
            body.append(_text(_inside(x, one.words), y - 12, one.words, "middle", "strong"))
    return _svg(title, top + plot + 50 + legend, body)


def _svg(title: str, height: float, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(body)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _grid(x: float, top: float, bottom: float, label: str, strong: bool = False) -> str:
    kind = "axis" if strong else "grid"
    line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" class="{kind}"/>'
    return line + _text(_inside(x, label), bottom + 18, label, "middle", "muted")


def _inside(x: float, words: str) -> float:
    """Where the middle of a text may stand at most, so that it does not leave the plot."""
    half = LETTER * len(words) / 2 + 4
    return min(max(x, half), WIDTH - half)


def _wrapped(words: str) -> list[str]:
    """Words in lines that fit the plot, at most two: the second ends in an ellipsis where there were more."""
    fit, found = int(WIDTH / LETTER), [""]
    for word in words.split():
        if len(found[-1]) + len(word) + 1 > fit:
            found.append("")
        found[-1] = f"{found[-1]} {word}".strip()
    return found if len(found) <= 2 else [found[0], f"{found[1][: fit - 2]} …"]


def _axis(values: Sequence[float]) -> tuple[float, float, list[float]]:
    """Return a range with round ends that holds `values`, and its ticks."""
    low, high = min(values), max(values)
    size = max(abs(low), abs(high))
    # Values that differ by less than a mark's width get an axis of their own size.
    span = high - low if high - low > 1e-9 * size and size > 1e-100 else max(size, 1.0)
    raw = span / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return first * step, last * step, [index * step for index in range(first, last + 1)]
