"""Two policies on the same tasks: exact McNemar, its Wald interval, Holm's correction, and the unpaired z for contrast.

`regressed` counts tasks that the incumbent solves and the candidate does not, `gained` the reverse; tasks on which both
agree say nothing about a difference. The paired cluster bootstrap of mean-of-seeds differences is in `compare`, on
the resamples of `intervals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr, bdtrc, ndtri

from ratchet.evaluation.intervals import Interval
from ratchet.evaluation.reducers import Floats


class Discordance(NamedTuple):
    """Tasks on which two policies differ."""

    regressed: int
    gained: int


def discordance(candidate: Floats, incumbent: Floats) -> Discordance:
    """Count the tasks on which they differ. Both are `(tasks,)` of 1.0 and 0.0, in the same order of tasks."""
    return Discordance(int(np.sum(candidate < incumbent)), int(np.sum(candidate > incumbent)))


def mcnemar(regressed: int, gained: int) -> float:
    """Two-sided exact p of "neither is better" (McNemar 1947, by the binomial); 1 where they agree."""
    pairs = regressed + gained
    return min(1.0, 2 * float(bdtr(min(regressed, gained), pairs, 0.5))) if pairs else 1.0


def mcnemar_regression(regressed: int, gained: int) -> float:
    """One-sided exact p of "the candidate is no worse": small where it regressed; 1 where nothing did."""
    return float(bdtrc(regressed - 1, regressed + gained, 0.5)) if regressed else 1.0


def paired_wald(regressed: int, gained: int, n: int, confidence: float = 0.95) -> Interval:
    """Wald interval of the difference of two paired shares (Agresti 2013, Categorical Data Analysis, equation 11.2)."""
    difference = (gained - regressed) / n
    half = float(ndtri(0.5 + confidence / 2)) * np.sqrt((regressed + gained) - (gained - regressed) ** 2 / n) / n
    return Interval(float(difference - half), float(difference + half))


def unpaired_z(candidate: int, incumbent: int, n: int) -> float:
    """Pooled two-sample z of two shares of n each: what one would get by throwing the pairing away."""
    pooled = (candidate + incumbent) / (2 * n)
    return float((candidate - incumbent) / n / np.sqrt(2 * pooled * (1 - pooled) / n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number (Holm 1979), in the order given; reject where one is at most alpha."""
    adjusted = [0.0] * len(p_values)
    floor = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = floor
    return adjusted
