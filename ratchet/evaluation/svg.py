"""Three plots as inline SVG: estimates with intervals, lines, and nothing that needs a script or a request.

Colours are CSS classes (`s0` to `s5`) and `currentColor`, so that the page's light and dark themes apply. Every plot
carries its text as a title for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, LEFT, RIGHT, ROW = 520, 120, 34, 42
Number = Callable[[float], str]


class Whisker(NamedTuple):
    """A labelled estimate; `value` None is shown as `words` in the place of the mark."""

    label: str
    value: float | None
    low: float | None
    high: float | None
    words: str


def whiskers(title: str, items: Sequence[Whisker], number: Number, zero: bool = False) -> str:
    """Plot estimates with intervals, one per line.

    Args:
        title: what is plotted, in words.
        items: from top to bottom.
        number: how a tick reads.
        zero: draw a line at 0, for differences.
    """
    seen = [x for item in items for x in (item.value, item.low, item.high) if x is not None]
    low, high, ticks = _axis([0.0, *seen])
    height = ROW * len(items) + 44

    def x_of(value: float) -> float:
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    body = [_grid(x_of(tick), 8, height - 30, number(tick), strong=zero and tick == 0) for tick in ticks]
    for index, item in enumerate(items):
        y = 8 + ROW * (index + 0.5)
        body.append(f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(_cut(item.label))}</text>')
        if item.value is None:
            body.append(f'<text x="{LEFT + 6}" y="{y + 4:.1f}" class="muted">{escape(item.words)}</text>')
            continue
        colour = f"s{index % 6}"
        if item.low is not None and item.high is not None:
            body.append(
                f'<line x1="{x_of(item.low):.1f}" x2="{x_of(item.high):.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                f'class="line {colour}" stroke-width="3"/>'
            )
        body.append(
            f'<circle cx="{x_of(item.value):.1f}" cy="{y:.1f}" r="5.5" class="dot {colour}">'
            f"<title>{escape(f'{item.label}: {item.words}')}</title></circle>"
        )
        # Written above its mark, and moved inwards where it would leave the plot.
        half = 3.6 * len(item.words)
        x = min(max(x_of(item.value), LEFT + half), WIDTH - half)
        body.append(
            f'<text x="{x:.1f}" y="{y - 10:.1f}" text-anchor="middle" class="muted">{escape(item.words)}</text>'
        )
    return _svg(title, height, body)


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    names: Sequence[str],
    x_label: str,
    x_number: Number,
    y_number: Number,
) -> str:
    """Plot series over a common x axis, each labelled in a legend under the plot.

    Args:
        title: what is plotted, in words.
        series: points by name; points that are not finite are left out.
        names: all names that share the page's colours, in their order; a series keeps its colour in every plot.
        x_label: what the x axis counts.
        x_number: how a tick of x reads.
        y_number: how a tick of y reads.
    """
    clean = {
        name: [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)] for name, points in series.items()
    }
    points = [point for found in clean.values() for point in found]
    left, top, plot = 70, 10, 210
    # Names stand beside each other in columns as wide as the longest.
    column = 44 + 8 * max((len(name) for name in clean), default=0)
    across = max(1, (WIDTH - left) // column)
    legend = 20 * -(-len(clean) // across)
    x_low, x_high, x_ticks = _axis([x for x, _ in points] or [0.0, 1.0])
    y_low, y_high, y_ticks = _axis([0.0, *(y for _, y in points)])

    def place(x: float, y: float) -> tuple[float, float]:
        right = left + (x - x_low) / (x_high - x_low) * (WIDTH - left - RIGHT)
        return right, top + plot - (y - y_low) / (y_high - y_low) * plot

    body = [_grid(place(tick, 0)[0], top, top + plot, x_number(tick)) for tick in x_ticks]
    for tick in y_ticks:
        y = place(x_low, tick)[1]
        body.append(f'<line x1="{left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        body.append(
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" class="muted">{escape(y_number(tick))}</text>'
        )
    body.append(
        f'<text x="{WIDTH - RIGHT}" y="{top + plot + 36}" text-anchor="end" class="muted">{escape(x_label)}</text>'
    )
    for index, (name, found) in enumerate(clean.items()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in found))
        colour = f"s{(list(names).index(name) if name in names else len(names) + index) % 6}"
        body.append(f'<polyline points="{path}" class="line {colour}" fill="none" stroke-width="2.2"/>')
        if len(found) == 1:
            ((x, y),) = (place(*point) for point in found)
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="dot {colour}"/>')
        x, y = left + column * (index % across), top + plot + 56 + 20 * (index // across)
        body.append(f'<rect x="{x}" y="{y - 9}" width="18" height="4" class="dot {colour}"/>')
        body.append(f'<text x="{x + 26}" y="{y - 2}">{escape(name)}</text>')
    return _svg(title, top + plot + 50 + legend, body)


def _svg(title: str, height: float, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(body)}</svg>'
    )


def _grid(x: float, top: float, bottom: float, label: str, strong: bool = False) -> str:
    kind = "axis" if strong else "grid"
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" class="{kind}"/>'
        f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle" class="muted">{escape(label)}</text>'
    )


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


def _cut(label: str, length: int = 14) -> str:
    return label if len(label) <= length else label[: length - 1] + "…"
