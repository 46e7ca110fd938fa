"""The e-process of the canary: its arithmetic, what it refuses, and how it resumes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from ratchet.errors import EvaluationError
from ratchet.evaluation.sequential import GRID, Wealth, WealthState, verdict_of


def differences(seed: int, production: float, canary: float, pairs: int) -> list[float]:
    rng = np.random.default_rng(seed)
    return ((rng.random(pairs) < canary).astype(float) - (rng.random(pairs) < production)).tolist()


def test_wealth_is_the_mean_over_the_grid_of_the_products() -> None:
    wealth = Wealth(margin=0.03)
    seen = [1.0, -1.0, 0.0, -0.4, 0.25]
    for difference in seen:
        wealth.update(difference)
    against = np.mean([np.prod([1 - bet * (d + 0.03) for d in seen]) for bet in GRID])
    favour = np.mean([np.prod([1 + bet * (d + 0.03) for d in seen]) for bet in GRID])
    assert wealth.roll_back_wealth == pytest.approx(against, rel=1e-12)
    assert wealth.promote_wealth == pytest.approx(favour, rel=1e-12)


@pytest.mark.parametrize(("difference", "verdict"), [(-1.0, "roll_back"), (1.0, "promote")])
def test_a_clear_difference_is_decided_in_few_pairs_and_stands(difference: float, verdict: str) -> None:
    wealth = Wealth()
    pairs = next(n for n in range(1, 100) if wealth.update(difference) != "hold")
    assert wealth.verdict == verdict
    assert pairs < 25
    for _ in range(500):
        assert wealth.update(-difference) == verdict
    assert wealth.pairs == pairs


def test_no_difference_at_all_promotes_in_the_end_as_it_is_above_minus_the_margin() -> None:
    assert verdict_of([0.0] * 200) == "hold"
    assert verdict_of([0.0] * 2000) == "promote"


def test_what_is_undecided_at_the_horizon_is_held() -> None:
    wealth = Wealth(horizon=3)
    assert [wealth.settled, *(wealth.update(d) and wealth.settled for d in (0.0, 0.0, 0.0))] == [False] * 3 + [True]
    before = wealth.state
    assert wealth.update(-1.0) == "hold"
    assert wealth.state == before


@pytest.mark.parametrize("difference", [1.0000001, -1.1, math.nan, math.inf, -math.inf])
def test_a_difference_that_is_none_is_refused_and_leaves_no_trace(difference: float) -> None:
    wealth = Wealth()
    wealth.update(0.5)
    before = wealth.state
    with pytest.raises(EvaluationError, match=r"pair 2 .*from -1 to 1"):
        wealth.update(difference)
    assert wealth.state == before


@pytest.mark.parametrize(
    "wrong",
    [{"grid": (0.98,)}, {"grid": (0.0,)}, {"grid": ()}, {"margin": 1.0}, {"alpha": 0.0}, {"horizon": 0}],
)
def test_bets_that_could_lose_everything_and_other_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Wealth(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("canary", [0.75, 0.65, 0.5, 0.9])
def test_a_state_through_json_after_every_pair_changes_nothing(canary: float) -> None:
    seen = differences(3, 0.75, canary, 600)
    whole, stored = Wealth(horizon=500), Wealth(horizon=500).state.model_dump_json()
    for difference in seen:
        resumed = Wealth.resume(WealthState.model_validate_json(stored))
        assert resumed.update(difference) == whole.update(difference)
        stored = resumed.state.model_dump_json()
    assert WealthState.model_validate_json(stored) == whole.state
    assert verdict_of(seen, horizon=500) == whole.verdict


def test_a_stored_state_that_does_not_fit_its_grid_is_refused() -> None:
    state = Wealth().state.model_dump()
    with pytest.raises(ValidationError, match="one log wealth"):
        WealthState.model_validate(state | {"against": [0.0]})
    with pytest.raises(ValidationError, match="finite"):
        WealthState.model_validate(state | {"against": [math.nan] * len(GRID)})
