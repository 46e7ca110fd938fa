"""Cost per accepted run and break-even: the reference figures, and words where there is no number."""

from __future__ import annotations

import numpy as np
import pytest
from heldout_rows import PRICES, plan, row

from ratchet.contracts.environment import Prices
from ratchet.contracts.score import NotComputable
from ratchet.evaluation.economics import (
    NEVER,
    NO_ACCEPTED,
    Investment,
    amortised_cost,
    break_even,
    break_even_interval,
    cost_floor,
    loaded_cost,
    run_cost,
    training_cost,
    variable_cost,
)


def of_400(accepted: int) -> float:
    """Variable cost at 2.18 per run."""
    cost = variable_cost(2.18 * 400, accepted)
    assert isinstance(cost, float)
    return cost


def test_reference_saving_and_exact_break_even() -> None:
    saving = of_400(246) - of_400(310)
    assert saving == pytest.approx(0.7318, abs=5e-5)
    assert 1600 / saving == pytest.approx(2186.35, abs=5e-3)


@pytest.mark.parametrize(
    ("incumbent", "candidate", "investment", "runs"),
    [(246, 310, 1600, 2187), (246, 272, 420, 1240), (272, 310, 1180, 3003)],
)
def test_reference_break_even(incumbent: int, candidate: int, investment: float, runs: int) -> None:
    assert break_even(investment, of_400(incumbent), of_400(candidate)) == runs


@pytest.mark.parametrize(("investment", "share"), [(420, 0.042), (1180, 0.118), (1600, 0.160)])
def test_reference_amortisation(investment: float, share: float) -> None:
    assert amortised_cost(0.0, investment, 10_000) == pytest.approx(share)


def test_training_adds_up_along_the_chain() -> None:
    assert Investment.of([420, 1180]) == Investment(stage=1180, cumulative=1600, beyond_incumbent=1600)
    assert Investment.of([420, 1180], shared=1) == Investment(stage=1180, cumulative=1600, beyond_incumbent=1180)
    assert Investment.of([]) == Investment(stage=0, cumulative=0, beyond_incumbent=0)


def test_loaded_cost_spreads_training_over_the_window() -> None:
    assert loaded_cost(of_400(310), 1600, 310) == pytest.approx((2.18 * 400 + 1600) / 310)


def test_no_saving_never_breaks_even() -> None:
    assert break_even(1600, 2.0, 2.0) == NEVER == break_even(1600, 2.0, 3.0)
    assert break_even(0, 3.0, 2.0) == 0


def test_zero_accepted_is_said_in_words_and_stays_so() -> None:
    nothing = variable_cost(872.0, 0)
    assert nothing == NO_ACCEPTED
    assert (
        loaded_cost(nothing, 10, 0) == amortised_cost(nothing, 10, 100) == break_even(10, 2.0, nothing) == NO_ACCEPTED
    )
    assert "0 accepted results in the window" in str(nothing)
    assert cost_floor(872.0, 0) == pytest.approx(872 / 3)
    assert isinstance(cost_floor(872.0, 3), NotComputable)


def test_a_run_is_priced_from_all_that_it_used() -> None:
    prices = Prices(
        currency="EUR",
        per_million_input_tokens=3,
        per_million_output_tokens=15,
        per_sandbox_s=0.01,
        per_verifier_s=0.02,
        per_judge_call=0.5,
        per_trainer_hour=2,
    )
    spent = {"tokens_in": 2_000_000, "tokens_out": 100_000, "sandbox_s": 10.0, "verifier_s": 5.0, "judge_calls": 2}
    assert run_cost(row(plan(1), 0, 0, "invalid", **spent), prices) == pytest.approx(6 + 1.5 + 0.1 + 0.1 + 1)
    assert training_cost({"seconds": 1800}, prices) == 1.0
    assert training_cost({"seconds": 1800, "curve": [{"judge_calls": 4}, {}, {"judge_calls": 2}]}, prices) == 4.0
    assert training_cost({}, prices) == 0.0
    assert run_cost(row(plan(1), 0, 0, "accepted"), PRICES) == pytest.approx(2.18)


def test_break_even_interval_holds_the_estimate_and_may_reach_never() -> None:
    rng = np.random.default_rng(0)
    accepted = np.stack([rng.normal(310, 9, 4000), rng.normal(246, 10, 4000)], axis=1).round()
    cost = np.full(4000, 2.18 * 400)
    samples = np.stack([cost, accepted[:, 0], cost, accepted[:, 1]], axis=1)
    found = break_even_interval(1600, 2187.0, samples, 400)
    assert found.low < 2187 < found.high
    samples[:, 1] = rng.normal(250, 9, 4000).round()
    assert break_even_interval(1600, 20_000.0, samples, 400).high == NEVER


def test_break_even_interval_with_nothing_accepted_anywhere_is_never() -> None:
    samples = np.zeros((100, 4))
    samples[:, [0, 2]] = 1.0
    assert break_even_interval(5.0, NEVER, samples, 40).low == NEVER
    assert break_even_interval(5.0, NO_ACCEPTED, samples, 40).low == NO_ACCEPTED
