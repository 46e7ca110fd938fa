"""A policy against itself: the gate's figure lets at most 2.5 % of such comparisons through."""

from __future__ import annotations

import numpy as np
import pytest

from ratchet.evaluation.intervals import cluster_bootstrap, percentile_interval


def _passes(clusters: int, size: int, repeats: int, resamples: int, minimum_effect: float = 0.0) -> float:
    """Share of A/A comparisons (3 seeds, tasks of a repo alike) whose lower bound exceeds the minimum effect."""
    rng = np.random.default_rng(clusters)
    passed = 0
    for repeat in range(repeats):
        repo = rng.beta(1.2, 0.8, (clusters, 1))
        tasks = np.clip(repo + rng.normal(0, 0.2, (clusters, size)), 0, 1)
        difference = (rng.binomial(3, tasks) - rng.binomial(3, tasks)) / 3
        columns = np.stack([difference.sum(axis=1), np.full(clusters, float(size))], axis=1)
        sums = cluster_bootstrap(columns, repeat, resamples)
        passed += percentile_interval(sums[:, 0] / sums[:, 1], clusters).low > minimum_effect
    return passed / repeats


def test_same_policy_light() -> None:
    assert _passes(54, 7, 400, 1000) <= 0.045


def test_a_minimum_effect_makes_it_rarer_still() -> None:
    assert _passes(54, 7, 200, 1000, minimum_effect=0.03) <= 0.005


@pytest.mark.slow
@pytest.mark.parametrize(("clusters", "size"), [(400, 1), (54, 7), (20, 20)])
def test_same_policy_passes_at_most_two_and_a_half_percent(clusters: int, size: int) -> None:
    # 2.5 % is the size of the test itself, so its simulation gets two standard errors on top.
    repeats = 3000
    assert _passes(clusters, size, repeats, 1000) <= 0.025 + 2 * np.sqrt(0.025 * 0.975 / repeats)
