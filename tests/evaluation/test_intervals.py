"""Intervals against oracles, against the reference figures, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from ratchet.evaluation.intervals import (
    bootstrap_p_above,
    clopper_pearson,
    cluster_bootstrap,
    percentile_interval,
    wilson,
)


@pytest.mark.parametrize(("accepted", "n"), [(0, 7), (1, 7), (7, 7), (246, 400), (0, 400), (400, 400), (3, 1200)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_share_intervals_match_statsmodels(accepted: int, n: int, confidence: float) -> None:
    for mine, method in ((wilson, "wilson"), (clopper_pearson, "beta")):
        oracle = proportion_confint(accepted, n, alpha=1 - confidence, method=method)
        np.testing.assert_allclose(mine(accepted, n, confidence), oracle, atol=1e-9)


@pytest.mark.parametrize(("accepted", "low", "high"), [(246, 0.566, 0.661), (272, 0.633, 0.724), (310, 0.732, 0.813)])
def test_reference_wilson_intervals(accepted: int, low: float, high: float) -> None:
    assert wilson(accepted, 400) == pytest.approx((low, high), abs=5e-4)


def test_no_tasks_have_no_interval() -> None:
    for interval in (wilson, clopper_pearson):
        with pytest.raises(ValueError, match="at least one task"):
            interval(0, 0)


def test_plain_bootstrap_matches_scipy_where_clusters_are_single_tasks() -> None:
    values = np.random.default_rng(3).random(300)
    columns = np.stack([values, np.ones(300)], axis=1)
    sums = cluster_bootstrap(columns, seed=1, resamples=20_000)
    mine = percentile_interval(sums[:, 0] / sums[:, 1], 300)
    oracle = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=2).confidence_interval
    np.testing.assert_allclose(mine, oracle, atol=1e-3)


def test_copies_inside_a_cluster_do_not_narrow_the_interval() -> None:
    values = np.random.default_rng(4).random(50)
    once = cluster_bootstrap(np.stack([values, np.ones(50)], axis=1), seed=1)
    tenfold = cluster_bootstrap(np.stack([10 * values, np.full(50, 10)], axis=1), seed=1)
    np.testing.assert_allclose(once[:, 0] / once[:, 1], tenfold[:, 0] / tenfold[:, 1])


def test_same_seed_same_resamples_and_every_resample_draws_all_clusters() -> None:
    columns = np.ones((37, 1))
    assert np.array_equal(cluster_bootstrap(columns, 5, 700), np.full((700, 1), 37.0))
    noise = np.random.default_rng(0).random((37, 2))
    assert np.array_equal(cluster_bootstrap(noise, 5), cluster_bootstrap(noise, 5))
    assert not np.array_equal(cluster_bootstrap(noise, 5), cluster_bootstrap(noise, 6))


def test_p_agrees_with_the_interval() -> None:
    samples = cluster_bootstrap(np.stack([np.random.default_rng(5).random(40), np.ones(40)], axis=1), seed=2)
    samples = samples[:, 0] / samples[:, 1]
    low, _ = percentile_interval(samples, 40)
    assert bootstrap_p_above(samples, low, 40) == pytest.approx(0.025, abs=0.001)
    assert bootstrap_p_above(samples, low - 0.01, 40) < 0.025 < bootstrap_p_above(samples, low + 0.01, 40)
    assert 0 < bootstrap_p_above(samples, -1.0, 40) < 1e-3
    assert bootstrap_p_above(samples, 2.0, 40) == pytest.approx(1.0)


def test_unbounded_resamples_keep_an_unbounded_side() -> None:
    samples = np.concatenate([np.full(500, np.inf), np.linspace(1, 2, 500)])
    low, high = percentile_interval(samples, 100)
    assert 1 <= low < 1.1
    assert np.isinf(high)


def _coverage(clusters: int, size: int, spread: float, repeats: int, resamples: int) -> float:
    """Share of intervals that hold the truth, for accepted shares that vary by cluster with mean 0.6."""
    rng = np.random.default_rng(clusters)
    hits = 0
    for repeat in range(repeats):
        shares = rng.beta(0.6 * spread, 0.4 * spread, clusters)
        accepted = rng.binomial(size, shares).astype(float)
        sums = cluster_bootstrap(np.stack([accepted, np.full(clusters, float(size))], axis=1), repeat, resamples)
        low, high = percentile_interval(sums[:, 0] / sums[:, 1], clusters)
        hits += low <= 0.6 <= high
    return hits / repeats


def test_coverage_light() -> None:
    assert 0.92 <= _coverage(50, 8, 2.0, 300, 1000) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize(("clusters", "size"), [(400, 1), (54, 7), (20, 20)])
def test_intervals_cover_94_to_96_percent(clusters: int, size: int) -> None:
    assert 0.94 <= _coverage(clusters, size, 2.0, 3000, 1000) <= 0.96
