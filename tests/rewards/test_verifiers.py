"""Verifiers: what counts as passing, and what is no verdict at all."""

from __future__ import annotations

import pytest
from reward_world import attempt, delivered, tiny_task, verdict

from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.verifiers import VERIFIERS

WORK = delivered(tiny_task())


def value(name: str, **over: bool) -> float:
    score = VERIFIERS[name](attempt(WORK, seen=verdict(**over)))
    assert isinstance(score, Scored)
    return score.value


def test_each_verifier_reads_its_own_tests() -> None:
    half = {"target": True, "regression": False}
    assert (value("target_tests", **half), value("regression_tests", **half), value("hidden_tests", **half)) == (
        1,
        0,
        0,
    )
    assert value("hidden_tests") == 1.0


@pytest.mark.parametrize("name", ["hidden_tests", "target_tests", "regression_tests"])
def test_a_verdict_in_which_no_test_ran_is_a_failure(name: str) -> None:
    score = VERIFIERS[name](attempt(WORK, seen=verdict(tests=())))
    assert isinstance(score, Scored)
    assert score.value == 0.0
    assert score.evidence["failed"] == "no test ran"


def test_evidence_names_the_tests_and_the_first_failing_one() -> None:
    score = VERIFIERS["hidden_tests"](attempt(WORK, seen=verdict(target=False)))
    assert isinstance(score, Scored)
    assert score.evidence == {"tests": ["t1", "t2"], "failed": "t1"}


def test_a_verdict_that_contradicts_itself_is_invalid() -> None:
    assert isinstance(VERIFIERS["hidden_tests"](attempt(WORK, seen=verdict(failed="t2"))), Invalid)


def test_visible_tests_that_did_not_run_last_earn_nothing() -> None:
    scores = [VERIFIERS["visible_tests"](attempt(delivered(tiny_task(), visible=seen))) for seen in (True, False, None)]
    assert [score.value for score in scores if isinstance(score, Scored)] == [1.0, 0.0, 0.0]
