"""Intervals for a share and for a ratio of sums.

Covered: Wilson, Clopper-Pearson, and the cluster percentile bootstrap with the small-sample expansion. The bootstrap
resamples whole clusters (repos), because tasks that share a repo are not independent. Everything that it can give an
interval to is a function of column sums over clusters, so one set of resamples serves all figures of a scorecard.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri, stdtr, stdtrit

from ratchet.contracts.score import NotComputable
from ratchet.evaluation.reducers import Floats

RESAMPLES = 10_000
MIN_CLUSTERS = 5
"""Fewer repos than this carry no bootstrap: its percentiles would be those of a handful of distinct resamples."""
FEW_CLUSTERS = NotComputable(reason=f"fewer than {MIN_CLUSTERS} independent repos")
CHUNK = 500
"""Resamples drawn at once: bounds the weights at CHUNK x clusters integers."""


class Interval(NamedTuple):
    """Lower and upper bound, in the unit of the estimate."""

    low: float
    high: float


def wilson(accepted: float, n: int, confidence: float = 0.95) -> Interval:
    """Wilson score interval of a share (Wilson 1927). Raises ValueError for n < 1."""
    if n < 1:
        raise ValueError("an interval needs at least one task")
    z = float(ndtri(0.5 + confidence / 2))
    share, spread = accepted / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z * np.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return Interval(max(0.0, float(centre - half)), min(1.0, float(centre + half)))


def clopper_pearson(accepted: float, n: int, confidence: float = 0.95) -> Interval:
    """Exact interval of a share (Clopper and Pearson 1934). Raises ValueError for n < 1.

    `accepted` may be fractional (n times a mean of seeds): the variance of such a mean is at most the binomial one, so
    the interval is then conservative.
    """
    if n < 1:
        raise ValueError("an interval needs at least one task")
    tail = (1 - confidence) / 2
    low = 0.0 if accepted <= 0 else float(betaincinv(accepted, n - accepted + 1, tail))
    high = 1.0 if accepted >= n else float(betaincinv(accepted + 1, n - accepted, 1 - tail))
    return Interval(low, high)


def cluster_bootstrap(columns: Floats, seed: int = 0, resamples: int = RESAMPLES) -> Floats:
    """Resample clusters with replacement and return the column sums of every resample.

    A resample draws as many clusters as there are; it is a row of multinomial weights, and its sums are one matrix
    product, so nothing of size resamples x tasks is ever held.

    Args:
        columns: `(clusters, k)`, the sums of k quantities over the tasks of each cluster.
        seed: of the numpy Generator; the same seed and shape give the same weights.
        resamples: how many.

    Returns:
        `(resamples, k)`.
    """
    rng = np.random.default_rng(seed)
    clusters = len(columns)
    even = np.full(clusters, 1 / clusters)
    sums = np.empty((resamples, columns.shape[1]))
    for start in range(0, resamples, CHUNK):
        stop = min(start + CHUNK, resamples)
        sums[start:stop] = rng.multinomial(clusters, even, size=stop - start) @ columns
    return sums


def percentile_interval(samples: Floats, clusters: int, confidence: float = 0.95) -> Interval:
    """Read the interval off bootstrap samples, at percentiles expanded for few clusters.

    The plain percentile interval is too short by the factor sqrt((G-1)/G) z/t for G clusters; taking the percentiles
    Phi(+-sqrt(G/(G-1)) t_{G-1}) instead corrects it (Hesterberg 2015, "What Teachers Should Know about the Bootstrap",
    section 3.3, the expanded percentile interval). With 400 clusters the difference vanishes.

    Args:
        samples: `(resamples,)`; may hold +inf for a resample in which the figure is unbounded.
        clusters: how many clusters were resampled, at least 2.
        confidence: of the two-sided interval.
    """
    tail = float(ndtr(np.sqrt(clusters / (clusters - 1)) * stdtrit(clusters - 1, (1 - confidence) / 2)))
    # Interpolating between two infinities is NaN; the order statistic below and above never is.
    low = np.quantile(samples, tail, method="lower" if np.isinf(samples).any() else "linear")
    high = np.quantile(samples, 1 - tail, method="higher" if np.isinf(samples).any() else "linear")
    return Interval(float(low), float(high))


def bootstrap_p_above(samples: Floats, threshold: float, clusters: int) -> float:
    """One-sided p of "the figure is at most `threshold`", by inverting the expanded percentile interval.

    It is below alpha / 2 exactly where the lower bound of the two-sided 1 - alpha interval exceeds `threshold` (up to
    the resolution of the resamples; a resample is added to each side, so p is never 0).

    Args:
        samples: `(resamples,)`.
        threshold: in the unit of the samples.
        clusters: how many clusters were resampled, at least 2.
    """
    share = (np.sum(samples <= threshold) + 1) / (len(samples) + 1)
    return float(stdtr(clusters - 1, np.sqrt((clusters - 1) / clusters) * ndtri(min(share, 1 - 1e-12))))
