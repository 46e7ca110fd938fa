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


def paired_wald(regressed: float, gained: float, n: int, confidence: float = 0.95) -> Interval:
    """Wald interval of the difference of two paired shares (Agresti 2013, Categorical Data Analysis, equation 11.2)."""
    difference = (gained - regressed) / n
    half = float(ndtri(0.5 + confidence / 2)) * np.sqrt((regressed + gained) - (gained - regressed) ** 2 / n) / n
    return Interval(float(difference - half), float(difference + half))


def paired_adjusted(regressed: int, gained: int, n: int, confidence: float = 0.95) -> Interval:
    """Interval of the same difference for few tasks: Wald's with half a task added to each of the four cells (Agresti
    and Min 2005, Statistics in Medicine 24, 729-740). Where no task differs it has a width, as Wald's has not.
    """
    low, high = paired_wald(regressed + 0.5, gained + 0.5, n + 2, confidence)
    return Interval(max(-1.0, low), min(1.0, high))


def unpaired_z(candidate: int, incumbent: int, n: int) -> float:
    """Pooled two-sample z of two shares of n each: what one would get by throwing the pairing away."""
    pooled = (candidate + incumbent) / (2 * n)
    return float((candidate - incumbent) / n / np.sqrt(2 * pooled * (1 - pooled) / n))


def holm(p_values: Sequence[float], unseen: int = 0) -> list[float]:
    """Adjust p-values for their number (Holm 1979), in the order given; reject where one is at most alpha.

    Args:
        p_values: of the tests at hand.
        unseen: further tests of the same family whose p-values are not at hand, such as candidates that opened the
            held-out set in earlier runs. They count as 1, which is the most that they can cost the others: whatever
            they were, no adjusted value would be larger.

    Raises:
        ValueError: a p-value is not in [0, 1] (NaN among them), or `unseen` is negative.
    """
    if unseen < 0 or not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"Holm's correction needs p-values from 0 to 1 and a count, got {p_values} and {unseen}")
    adjusted = [0.0] * len(p_values)
    floor, family = 0.0, len(p_values) + unseen
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        floor = max(floor, min(1.0, (family - rank) * p_values[index]))
        adjusted[index] = floor
    return adjusted
