"""Paired tests against oracles and the reference figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportions_ztest

from ratchet.evaluation.paired import (
    discordance,
    holm,
    mcnemar,
    mcnemar_regression,
    paired_adjusted,
    paired_wald,
    unpaired_z,
)

counts = st.integers(0, 60)


@given(counts, counts)
def test_mcnemar_matches_statsmodels(regressed: int, gained: int) -> None:
    oracle = statsmodels_mcnemar([[5, regressed], [gained, 5]], exact=True).pvalue if regressed + gained else 1.0
    assert mcnemar(regressed, gained) == pytest.approx(min(1.0, oracle), abs=1e-9)


@given(counts, counts)
def test_one_sided_mcnemar_matches_scipy(regressed: int, gained: int) -> None:
    pairs = regressed + gained
    oracle = stats.binomtest(regressed, pairs, 0.5, alternative="greater").pvalue if pairs else 1.0
    assert mcnemar_regression(regressed, gained) == pytest.approx(oracle, abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_matches_statsmodels(p_values: list[float]) -> None:
    np.testing.assert_allclose(holm(p_values), multipletests(p_values, method="holm")[1], atol=1e-9)


def test_holm_of_nothing_is_nothing() -> None:
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.lists(st.floats(0, 1), max_size=6))
def test_tests_that_are_not_at_hand_cost_as_much_as_they_can(p_values: list[float], others: list[float]) -> None:
    """Whatever p the unseen tests had, the correction that knew them would not have been stricter."""
    careful = holm(p_values, unseen=len(others))
    known = holm([*p_values, *others])[: len(p_values)]
    assert all(mine >= theirs - 1e-12 for mine, theirs in zip(careful, known, strict=True))
    np.testing.assert_allclose(
        careful, multipletests([*p_values, *[1.0] * len(others)], method="holm")[1][: len(p_values)], atol=1e-9
    )


@pytest.mark.parametrize(("p_values", "unseen"), [([float("nan")], 0), ([-0.1], 0), ([1.1], 0), ([0.5], -1)])
def test_holm_refuses_what_is_no_p_value_and_no_count(p_values: list[float], unseen: int) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        holm(p_values, unseen)


def test_discordance_counts_both_directions() -> None:
    assert discordance(np.array([1.0, 0.0, 0.0, 1.0]), np.array([1.0, 1.0, 1.0, 0.0])) == (2, 1)


def test_reference_272_against_246() -> None:
    assert mcnemar(20, 46) == pytest.approx(0.0019, abs=5e-5)
    assert mcnemar(68, 94) < 0.05 < mcnemar(69, 95)
    assert unpaired_z(272, 246, 400) == pytest.approx(1.92, abs=5e-3)
    assert unpaired_z(272, 246, 400) == pytest.approx(proportions_ztest([272, 246], [400, 400])[0], abs=1e-9)
    assert 2 * stats.norm.sf(unpaired_z(272, 246, 400)) == pytest.approx(0.054, abs=5e-4)


def test_reference_310_against_246() -> None:
    assert mcnemar(20, 84) == pytest.approx(1.6e-10, rel=0.03)
    assert paired_wald(20, 84, 400) == pytest.approx((0.113, 0.207), abs=5e-4)
    assert unpaired_z(310, 246, 400) == pytest.approx(4.92, abs=6e-3)


def _family_error(repeats: int, segments: int = 8, tasks: int = 50, share: float = 0.2) -> float:
    """Share of harmless candidates that lose a segment."""
    rng = np.random.default_rng(11)
    pairs = rng.binomial(tasks, share, (repeats, segments))
    regressed = rng.binomial(pairs, 0.5)
    rejected = [
        min(holm([mcnemar_regression(int(b), int(n - b)) for b, n in zip(lost, total, strict=True)])) <= 0.05
        for lost, total in zip(regressed, pairs, strict=True)
    ]
    return float(np.mean(rejected))


def test_holm_keeps_the_family_error_light() -> None:
    assert _family_error(1500) <= 0.06


@pytest.mark.slow
def test_holm_keeps_the_family_error() -> None:
    assert _family_error(40_000) <= 0.05


@pytest.mark.parametrize(
    ("regressed", "gained", "n", "low", "high"),
    [(0, 0, 10, -0.1633, 0.1633), (9, 30, 100, 0.0911, 0.3207), (0, 1, 1, -0.5101, 1.0)],
)
def test_the_adjusted_interval_has_a_width_where_nothing_differs_and_stays_a_difference(
    regressed: int, gained: int, n: int, low: float, high: float
) -> None:
    assert paired_adjusted(regressed, gained, n) == pytest.approx((low, high), abs=5e-5)
