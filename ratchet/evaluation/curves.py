"""Learning curves: from the rows that a trainer logged to one series of (step, value) per quantity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Curve = tuple[tuple[int, float], ...]
"""(step, value), in the order in which they were logged."""


def learning_curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Return the curves by quantity, with gaps left out.

    Args:
        rows: one per logged step, with `step`, figures, and further figures under `metrics`; what is no finite number
            is left out.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for at, row in enumerate(rows):
        for name, value in {**row, **(row.get("metrics") or {})}.items():
            if name == "step" or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if math.isfinite(value):
                found.setdefault(name, []).append((int(row.get("step", at)), float(value)))
    return {name: tuple(points) for name, points in found.items()}
