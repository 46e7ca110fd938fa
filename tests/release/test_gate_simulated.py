"""What the gate does over many evaluations: it seldom promotes what is no better, and finds what is.

Every decision is the real one, of scorecards made of rows; tasks share repos, and what makes a task hard is common to
both arms.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from heldout_rows import card, plan, rows

from ratchet.contracts.canonical import digest
from ratchet.evaluation.scorecard import Scorecard
from ratchet.release.decision import Decision
from ratchet.release.gate import decide
from ratchet.release.inputs import (
    AuditInput,
    ContaminationInput,
    GateInputs,
    IncumbentInput,
    Limits,
    PermissionsInput,
    RightInput,
)

AT = datetime(2026, 1, 2, tzinfo=UTC)
TASKS, SEEDS, REPOS = 120, 3, 40
PLAN = plan(TASKS, SEEDS, repos=REPOS, segments=("a", "b", "c"))


def inputs(minimum_effect: float, policy: str = "candidate") -> GateInputs:
    """All that is not measured here is in order, and cost and latency may vary by chance."""
    return GateInputs(
        manifest_digest="manifest",
        lock_digest="lock",
        reward_digest="reward",
        limits=Limits(minimum_effect=minimum_effect, max_latency_ratio=2, max_cost_ratio=2),
        incumbent=IncumbentInput(digest="pin", version=None, released_for=None, evaluated_in="repair 1"),
        contamination=ContaminationInput(digest="cert", lock_digest="lock", passed=True, findings=0),
        rights=(RightInput(grant_id="logs", digest="grant", state="active", valid=True, rows=900),),
        reward_audit=AuditInput(digest="tried", subject_digest="reward", passed=True),
        policy_audit=AuditInput(digest="audit", subject_digest=digest(policy), passed=True),
        permissions=PermissionsInput(incumbent_digest="harness", candidate_digest="harness", widened=()),
    )


def hardness(rng: np.random.Generator) -> np.ndarray:
    """Probability of each task to be accepted, `(tasks, 1)`: repos differ, and the tasks of a repo, too."""
    repos = rng.beta(3.0, 2.0, REPOS)[np.arange(TASKS) % REPOS]
    return rng.beta(4 * repos + 0.2, 4 * (1 - repos) + 0.2)[:, None]


def arm(rng: np.random.Generator, accepted: np.ndarray, policy: str) -> list[Any]:
    return rows(PLAN, (rng.random((TASKS, SEEDS)) < accepted).astype(int), policy)


def judged(own: Scorecard, incumbent: Scorecard, minimum_effect: float, others: tuple[Scorecard, ...] = ()) -> Decision:
    return decide(own, incumbent, inputs(minimum_effect, own.name), others=others, decided_at=AT, decided_by="rule")


def promotions(seed: int, repeats: int, minimum_effect: float, gain: float = 0.0) -> float:
    """Share of evaluations in which a candidate that is better by `gain` is promoted."""
    rng, promoted = np.random.default_rng(seed), 0
    for _ in range(repeats):
        hard = hardness(rng)
        theirs = arm(rng, hard, "incumbent")
        mine = arm(rng, np.minimum(hard + gain, 1), "candidate")
        own = card(mine, theirs, minimum_effect=minimum_effect, resamples=2000)
        promoted += judged(own, card(theirs, None, resamples=10), minimum_effect).state == "promote"
    return promoted / repeats


def test_the_same_policy_under_two_names_is_seldom_promoted_and_a_better_one_often() -> None:
    assert promotions(1, 60, 0.0) <= 0.1
    assert promotions(2, 20, 0.0, gain=0.25) >= 0.9


@pytest.mark.slow
def test_an_a_a_comparison_promotes_at_most_2_5_percent_even_where_any_gain_would_do() -> None:
    """2.5 % is the size of the test itself, so its simulation gets two standard errors on top."""
    repeats = 500
    assert promotions(3, repeats, 0.0) <= 0.025 + 2 * np.sqrt(0.025 * 0.975 / repeats)


@pytest.mark.slow
def test_with_an_effect_worth_shipping_an_a_a_comparison_promotes_next_to_never() -> None:
    assert promotions(4, 300, 0.03) <= 0.01


@pytest.mark.slow
def test_the_best_of_five_equal_candidates_is_promoted_no_more_often_than_one() -> None:
    """Even where the candidate is chosen on the held-out tasks, which the loop never does."""
    rng, promoted, repeats = np.random.default_rng(5), 0, 150
    for _ in range(repeats):
        hard = hardness(rng)
        theirs = arm(rng, hard, "incumbent")
        cards = [card(arm(rng, hard, f"c{i}"), theirs, minimum_effect=0.0, resamples=2000) for i in range(5)]
        best = max(cards, key=lambda one: one.mean_of_seeds.value)
        others = tuple(one for one in cards if one is not best)
        promoted += judged(best, card(theirs, None, resamples=10), 0.0, others).state == "promote"
    assert promoted / repeats <= 0.025 + 2 * np.sqrt(0.025 * 0.975 / repeats)
