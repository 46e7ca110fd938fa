"""Composition: monotone in each part, vetoes absolute, invalid contagious, and acceptance apart from reward."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reward_world import SOLUTION, WEAK, delivered, reward, tiny_task, verdict

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.environment import Deliverable, Task, Verdict
from ratchet.contracts.judge import JudgeSection
from ratchet.contracts.manifest import Reward, RewardPart
from ratchet.contracts.score import Invalid, Scored
from ratchet.errors import RatchetError
from ratchet.rewards import compose
from ratchet.rewards.compose import Outcome, discounted, judge_outcome, weighted_mean
from ratchet.rewards.gates import GATES, GateResult
from ratchet.rewards.verifiers import VERIFIERS

TASK = tiny_task()
FIX = delivered(TASK, solution=TASK.payload["files"][SOLUTION].replace("a - b", "a + b"), visible=True)
CHEAT = delivered(TASK, test_visible="assert True\n", visible=True)
FAILED = verdict(target=False)
shares = st.floats(0, 1)
TESTS = ("hidden_tests", "regression_tests", "target_tests", "visible_tests")
"""The verifiers that read nothing which a task must declare."""
terms = st.builds(
    lambda weights, discount, malformed, tamper: Reward(
        parts=tuple(RewardPart(verifier=name, weight=w) for name, w in zip(TESTS, weights, strict=False)),
        call_discount=discount,
        malformed_penalty=malformed,
        tamper_penalty=tamper,
    ),
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=len(TESTS)),
    st.floats(0, 0.99),
    st.floats(0, 5),
    st.floats(0, 5),
)


def judge(deliverable: Deliverable = FIX, seen: Verdict | Invalid | None = None, **over: Any) -> Outcome:
    spec = over.pop("spec", reward())
    return judge_outcome(TASK, deliverable, seen or verdict(), **{"calls": 0, "malformed": 0, **over}, spec=spec)


def test_the_formula() -> None:
    assert judge(calls=6, malformed=2).reward == pytest.approx(1 * (1 - 0.02 * 6) - 0.05 * 2)
    assert judge(CHEAT, FAILED, calls=3).reward == pytest.approx(-0.2)
    parts = reward(parts={"target_tests": 3.0, "regression_tests": 1.0})
    assert judge(FIX, FAILED, spec=parts).reward == pytest.approx(0.25)


def test_an_accepted_outcome_carries_its_evidence() -> None:
    outcome = judge()
    assert outcome.accepted
    assert isinstance(outcome.score, Scored)
    assert outcome.score.evidence == {"submitted": True, "tests": ["t1", "t2"], "failed": None, "failed_gates": []}
    assert Outcome.model_validate_json(outcome.model_dump_json()) == outcome


def test_what_was_not_submitted_is_neither_accepted_nor_paid() -> None:
    outcome = judge(FIX.model_copy(update={"submitted": False}))
    assert (outcome.accepted, outcome.reward) == (False, 0.0)


def test_a_failed_gate_is_a_violation_by_name() -> None:
    assert judge(CHEAT).violations == ("no_forbidden_file",)
    assert judge(CHEAT).exploit
    assert judge(CHEAT).evidence["exploits"] == ["edited_tests", "deleted_asserts"]


def test_acceptance_uses_every_gate_and_the_hidden_tests_though_the_reward_does_not() -> None:
    earned = judge(CHEAT, FAILED, spec=WEAK)
    assert (earned.reward, earned.accepted, earned.exploit) == (1.0, False, True)
    assert not judge(CHEAT, verdict(), spec=WEAK).accepted


@given(terms, st.data(), st.integers(0, 100), st.integers(0, 20), st.booleans())
def test_the_reward_is_monotone_in_each_part(
    spec: Reward, data: st.DataObject, calls: int, malformed: int, exploit: bool
) -> None:
    values = {part.verifier: data.draw(shares) for part in spec.parts}
    raised = data.draw(st.sampled_from(sorted(values)))
    better = {**values, raised: data.draw(st.floats(values[raised], 1))}
    low, high = weighted_mean(values, spec), weighted_mean(better, spec)
    assert 0 <= low <= high + 1e-12 <= 1 + 1e-12
    assert discounted(low, calls, malformed, exploit, spec) <= discounted(high, calls, malformed, exploit, spec) + 1e-12


@given(terms, shares, st.integers(0, 100), st.integers(0, 20))
def test_calls_malformed_calls_and_exploits_never_pay(spec: Reward, value: float, calls: int, malformed: int) -> None:
    plain = discounted(value, calls, malformed, False, spec)
    assert discounted(value, calls + 1, malformed, False, spec) <= plain
    assert discounted(value, calls, malformed + 1, False, spec) <= plain
    assert discounted(value, calls, malformed, True, spec) <= plain


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.sampled_from(sorted(GATES)), min_size=1),
    st.sets(st.sampled_from(sorted(GATES))),
    st.dictionaries(st.sampled_from(TESTS), st.floats(0.1, 10), min_size=1),
    st.booleans(),
)
def test_a_veto_is_absolute(failing: set[str], listed: set[str], parts: dict[str, float], target: bool) -> None:
    gates = {name: _stub(name, name not in failing) for name in GATES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "GATES", gates)
        spec = reward(tuple(sorted(listed)), parts=parts)
        outcome = judge(FIX, verdict(target=target), spec=spec, calls=4, malformed=1)
    assert not outcome.accepted
    assert set(outcome.violations) == failing
    if failing & listed:
        assert outcome.reward == pytest.approx(-0.05)


def _stub(name: str, passed: bool) -> Any:
    return lambda attempt: GateResult(name=name, passed=passed)


def test_an_invalid_verification_is_never_a_zero() -> None:
    outcome = judge(FIX, Invalid(reason="sandbox: died"))
    assert outcome.score == Invalid(reason="sandbox: died")
    assert outcome.reward is None
    assert not outcome.accepted


def _raises(*_: object) -> Any:
    raise OSError("disk is gone")


def _not_a_number(attempt: Attempt) -> Any:
    return Scored(value=float("nan"))


def _garbage(*_: object) -> Any:
    return 1.0


@pytest.mark.parametrize("broken", [_raises, _not_a_number, _garbage])
@pytest.mark.parametrize("name", TESTS)
def test_a_broken_verifier_makes_the_composite_invalid(name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERIFIERS, name, broken)
    outcome = judge(spec=reward(parts={"target_tests": 1.0, name: 1e-9}))
    assert isinstance(outcome.score, Invalid)
    assert name in outcome.score.reason
    assert outcome.reward is None


@pytest.mark.parametrize("broken", [_raises, _garbage])
@pytest.mark.parametrize("name", sorted(GATES))
def test_a_broken_gate_makes_the_outcome_invalid_though_the_reward_does_not_list_it(
    name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GATES, name, broken)
    outcome = judge(spec=WEAK)
    assert isinstance(outcome.score, Invalid)
    assert name in outcome.score.reason
    assert outcome.reward is None
    assert name not in outcome.violations


def test_a_task_without_files_is_invalid_and_no_fault_of_the_policy() -> None:
    task: Task = TASK.model_copy(update={"payload": {}})
    outcome = judge_outcome(task, FIX, verdict(), calls=1, malformed=0, spec=reward())
    assert isinstance(outcome.score, Invalid)
    assert outcome.violations == ()


def test_another_gate_is_an_entry_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GATES, "no_fridays", _stub("no_fridays", False))
    assert judge(spec=reward(("no_fridays",))).violations == ("no_fridays",)


def test_every_mistake_of_a_composition_is_named_at_once() -> None:
    spec = Reward(
        parts=(RewardPart(verifier="guess", weight=1), RewardPart(verifier="guess", weight=2)),
        gates=("nice",),
        judge=JudgeSection(rubric="hidden_tests", weight=0.1),
    )
    with pytest.raises(RatchetError) as caught:
        judge(spec=spec)
    for mistake in (
        "verifier 'guess' is unknown",
        "'guess' is named twice",
        "gate 'nice' is unknown",
        "rubric 'hidden_tests' is the name of a verifier too",
    ):
        assert mistake in str(caught.value)
