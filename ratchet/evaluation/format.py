"""How figures read. Every surface (table, page, tracking server, command line) formats its numbers here and nowhere
else.

A quantity that cannot be computed is shown as its reason, in every place where a number would stand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ratchet.contracts.score import NotComputable, Quantity


def quantity(value: Any) -> Quantity | None:
    """Take a figure from a report: a number, `{"not_computable": reason}`, or None where the report has none."""
    parsed = NotComputable.parse(value)
    return parsed if parsed is None or isinstance(parsed, NotComputable) else float(parsed)


def _format(value: Any, number: Callable[[float], str]) -> str:
    found = quantity(value)
    if found is None:
        return "–"
    return found.reason if isinstance(found, NotComputable) else number(found)


def percent(value: Any) -> str:
    """A share as `57.2 %`."""
    return _format(value, lambda x: f"{100 * x:.1f} %")


def points(value: Any) -> str:
    """A difference of shares as `+16.0 points`."""
    return _format(value, lambda x: f"{100 * x:+.1f} points")


def size(value: Any) -> str:
    """The size of a difference of shares, whatever its sign, as `6.2 points`."""
    return _format(value, lambda x: f"{100 * x:.1f} points")


def percent_interval(estimate: Any) -> str:
    """`{value, low, high}` as `57.2 % [52.1, 62.3]`."""
    return _interval(estimate, percent, lambda x: f"{100 * x:.1f}")


def points_interval(estimate: Any) -> str:
    """`{value, low, high}` as `+16.0 points [+11.3, +20.7]`."""
    return _interval(estimate, points, lambda x: f"{100 * x:+.1f}")


def _interval(estimate: Any, centre: Callable[[Any], str], bound: Callable[[float], str]) -> str:
    found = NotComputable.parse(estimate)
    if found is None or isinstance(found, NotComputable):
        return centre(found)
    low, high = quantity(found["low"]), quantity(found["high"])
    if not isinstance(low, float) or not isinstance(high, float):
        return centre(found["value"])
    return f"{centre(found['value'])} [{bound(low)}, {bound(high)}]"


def money(value: Any, currency: str = "") -> str:
    """An amount: `1,600.00 USD` to the cent, or under 10 with four significant digits, `0.00002184 USD`."""
    suffix = f" {currency}" if currency else ""
    return _format(value, lambda x: (f"{x:,.2f}" if abs(x) >= 10 else _small(x)) + suffix)


def _small(x: float) -> str:
    """Four significant digits, never an exponent: prices are read by people who do not calculate in powers of ten."""
    digits = 3 - math.floor(math.log10(abs(x))) if x else 0
    return f"{x:.{digits}f}".rstrip("0").rstrip(".") if digits > 0 else f"{x:.0f}"


def seconds(value: Any) -> str:
    """A duration as `1.24 s`, or in milliseconds under a tenth of a second."""
    return _format(value, lambda x: f"{x:.2f} s" if x >= 0.1 else f"{1000 * x:.1f} ms")


def moment(at: str) -> str:
    """A moment in ISO 8601, in UTC, as `2026-01-02 03:04 UTC`."""
    return f"{at[:16].replace('T', ' ')} UTC"


def whole(value: Any) -> str:
    """A count as `2,187`."""
    return _format(value, lambda x: f"{x:,.0f}")


def figure(value: Any) -> str:
    """A figure without a unit, to four significant digits, as `0.871` or `53.38`."""
    return _format(value, lambda x: f"{x:,.0f}" if float(x).is_integer() else _small(x))


def p_value(value: Any) -> str:
    """A p-value as `0.0019`, or `< 0.0001`."""
    return _format(value, lambda x: "< 0.0001" if x < 0.0001 else f"{x:.2g}")
