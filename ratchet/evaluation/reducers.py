"""From the seeds of a task to one figure per task, in no order of the seeds.

Outcomes are an array `(tasks, seeds)` of 1 (accepted), 0 (rejected) and NaN (the run stays invalid after its retries).
Covered: majority, mean, pass^k. Not covered: intervals and comparisons, which treat the task, never the run, as the
unit of observation, because the seeds of one task are not independent.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def majority(outcomes: Floats) -> Floats:
    """Accept a task when more than half of its planned seeds are accepted; an invalid seed is not an accepted one.

    Args:
        outcomes: `(tasks, seeds)` of 1, 0 and NaN.

    Returns:
        `(tasks,)` of 1.0 and 0.0.
    """
    return (2 * np.nansum(outcomes, axis=1) > outcomes.shape[1]).astype(np.float64)


def mean_of_seeds(outcomes: Floats) -> Floats:
    """Mean over the valid seeds of each task.

    Args:
        outcomes: `(tasks, seeds)` of 1, 0 and NaN.

    Returns:
        `(tasks,)` in [0, 1]; NaN for a task without a valid seed, which has to be left out.
    """
    valid = np.sum(~np.isnan(outcomes), axis=1)
    accepted = np.nansum(outcomes, axis=1)
    return np.divide(accepted, valid, out=np.full(len(outcomes), np.nan), where=valid > 0)


def pass_hat_k(outcomes: Floats, k: int) -> float:
    """Estimate pass^k, the probability that k independent runs of a task are all accepted, averaged over tasks.

    The unbiased estimate of one task is C(accepted, k) / C(valid, k) (Yao et al. 2024, tau-bench, section 3); tasks
    with fewer than k valid seeds are left out.

    Args:
        outcomes: `(tasks, seeds)` of 1, 0 and NaN.
        k: how many runs, from 1 to the number of seeds.

    Returns:
        The estimate, or NaN where no task has k valid seeds.
    """
    valid = np.sum(~np.isnan(outcomes), axis=1).astype(int)
    accepted = np.nansum(outcomes, axis=1).astype(int)
    shares = [math.comb(a, k) / math.comb(n, k) for a, n in zip(accepted, valid, strict=True) if n >= k]
    return float(np.mean(shares)) if shares else math.nan
