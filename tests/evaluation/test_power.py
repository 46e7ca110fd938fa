"""Detectable effects: reference figures, simulation, and the plan that refuses to run blind."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from statsmodels.stats.power import NormalIndPower
from statsmodels.stats.proportion import proportion_effectsize

from ratchet.contracts.score import NotComputable
from ratchet.errors import EvaluationError
from ratchet.evaluation.power import detectable_effect, power_of, power_plan, unpaired_detectable_effect


@pytest.mark.parametrize(("share", "points"), [(0.10, 4.4), (0.15, 5.4), (0.20, 6.2), (0.25, 7.0), (0.30, 7.6)])
def test_reference_detectable_effects(share: float, points: float) -> None:
    effect = detectable_effect(400, share)
    assert isinstance(effect, float)
    assert 100 * effect == pytest.approx(points, abs=0.05)
    assert power_of(effect, 400, share) == pytest.approx(0.8, abs=1e-9)


def test_reference_unpaired_detectable_effect() -> None:
    effect = unpaired_detectable_effect(400, 246 / 400)
    assert 100 * effect == pytest.approx(9.4, abs=0.05)
    arcsine = NormalIndPower().power(proportion_effectsize(246 / 400 + effect, 246 / 400), 400, 0.05)
    assert arcsine == pytest.approx(0.8, abs=0.01)


def test_what_no_size_can_show_is_said_in_words() -> None:
    for impossible in (detectable_effect(400, 0.0), detectable_effect(3, 0.1), detectable_effect(0, 0.1)):
        assert isinstance(impossible, NotComputable)


def test_an_effect_beyond_the_assumed_discordance_brings_its_own() -> None:
    effect = detectable_effect(40, 0.1)
    assert effect > 0.1
    assert power_of(effect, 40, effect) == pytest.approx(0.8, abs=1e-9)


def _simulated(effect: float, n: int, share: float, repeats: int) -> float:
    """Power of the asymptotic McNemar test, which Connor's formula describes."""
    rng = np.random.default_rng(1)
    counts = rng.multinomial(n, [(share + effect) / 2, (share - effect) / 2, 1 - share], size=repeats)
    pairs = np.maximum(counts[:, 0] + counts[:, 1], 1)
    return float(np.mean(np.abs(counts[:, 0] - counts[:, 1]) / np.sqrt(pairs) > ndtri(0.975)))


@pytest.mark.parametrize(("share", "effect"), [(0.10, 0.044), (0.20, 0.062), (0.30, 0.05), (0.20, 0.08)])
def test_connor_is_within_two_points_of_simulation(share: float, effect: float) -> None:
    assert power_of(effect, 400, share) == pytest.approx(_simulated(effect, 400, share, 100_000), abs=0.02)


def test_plan_of_the_reference_size_shows_four_points_by_mean_and_5_8_by_majority() -> None:
    plan = power_plan(400, 3, 0.05)
    assert 100 * plan.detectable_mean == pytest.approx(4.0, abs=0.05)
    assert 100 * plan.detectable_majority == pytest.approx(5.8, abs=0.05)
    assert plan.sees_goal
    assert "400 tasks x 3 seeds" in str(plan)
    assert "4.0 points with 80% power (5.8 points by majority)" in str(plan)


def test_clusters_make_tasks_worth_less() -> None:
    plan = power_plan(400, 3, 0.10, clusters=54, cluster_correlation=0.2)
    assert plan.effective_tasks == pytest.approx(400 / (1 + (400 / 54 - 1) * 0.2))
    assert plan.detectable_mean > power_plan(400, 3, 0.10).detectable_mean


def test_blind_experiment_is_refused_unless_the_manifest_accepts_it() -> None:
    with pytest.raises(EvaluationError, match=r"minimum_effect is 0.02: .*4\.0 points.*accept_underpowered"):
        power_plan(400, 3, 0.02)
    plan = power_plan(400, 3, 0.02, accept_underpowered=True)
    assert not plan.sees_goal
    assert plan.accepted_underpowered


def test_tiny_experiment_that_sees_nothing_is_refused_in_words() -> None:
    with pytest.raises(EvaluationError, match="show no effect at all"):
        power_plan(3, 1, 0.5)
