"""Process scores in a composition, acceptance by other verifiers, and the properties that hold of every composition."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reward_world import SOLUTION, delivered, reward, tiny_task, verdict

from ratchet.contracts.attempt import Attempt, CallStep
from ratchet.contracts.environment import ToolCall, ToolResult
from ratchet.contracts.manifest import Reward, RewardPart, StepPart
from ratchet.contracts.score import Invalid, Scored
from ratchet.errors import RatchetError
from ratchet.rewards import compose
from ratchet.rewards.compose import Outcome, judge_outcome, spec_digest, step_weight
from ratchet.rewards.gates import GATES, GateResult
from ratchet.rewards.verifiers import Registry

TASK = tiny_task()
FIX = delivered(TASK, solution=TASK.payload["files"][SOLUTION].replace("a - b", "a + b"), visible=True)
STEPS = [CallStep(call=ToolCall(name=n), result=ToolResult(content=n, status="ok")) for n in ("look", "look", "fix")]
NAMES = ("one", "two", "three")


def judge(spec: Reward, **over: Any) -> Outcome:
    return judge_outcome(
        TASK, FIX, over.pop("seen", verdict()), **{"calls": 3, "malformed": 0, "steps": STEPS, **over}, spec=spec
    )


def steps(**weights: float) -> tuple[StepPart, ...]:
    return tuple(StepPart(verifier=name, weight=weight) for name, weight in weights.items())


def test_process_scores_stand_beside_the_reward_and_change_nothing_in_it() -> None:
    plain, scored = judge(reward()), judge(reward(steps=steps(needed_calls=0.5)))
    assert [step.value for step in scored.steps] == [1, 0, 1]
    assert scored.steps[1].evidence["needed_calls"]["why"].startswith("redundant")
    assert scored.model_copy(update={"steps": ()}) == plain


def test_weight_zero_is_the_reward_without_process_scores() -> None:
    spec = reward(steps=steps(needed_calls=0.0))
    assert judge(spec) == judge(reward())
    assert (step_weight(spec), spec_digest(spec)) == (0, spec_digest(reward()))


def test_a_deliverable_that_no_episode_made_has_no_steps_and_stays_valid() -> None:
    outcome = judge(reward(steps=steps(needed_calls=1.0)), steps=None)
    assert (outcome.steps, outcome.accepted) == ((), True)


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry("ratchet.step_verifiers")
    monkeypatch.setattr(compose, "STEP_VERIFIERS", registry)
    return registry


def test_several_process_scores_are_averaged_by_weight(plugged: Registry) -> None:
    plugged["low"], plugged["high"] = (lambda work: [Scored(value=0.0)] * 3), (lambda work: [Scored(value=1.0)] * 3)
    spec = reward(steps=steps(low=0.1, high=0.3))
    assert [step.value for step in judge(spec).steps] == pytest.approx([0.75] * 3)
    assert step_weight(spec) == pytest.approx(0.4)


def _nothing(work: Attempt) -> Any:
    return None


def _short(work: Attempt) -> Any:
    return [Scored(value=1.0)]


def _one_bad(work: Attempt) -> Any:
    return [Scored(value=1.0), Scored.model_construct(value=float("nan"), evidence={}), Scored(value=1.0)]


def _one_invalid(work: Attempt) -> Any:
    return [Scored(value=1.0), Invalid(reason="step 2 is lost"), Scored(value=1.0)]


def _raises(work: Attempt) -> Any:
    raise KeyError("payload")


@pytest.mark.parametrize("broken", [_nothing, _short, _one_bad, _one_invalid, _raises])
def test_a_broken_step_verifier_makes_the_whole_outcome_invalid(broken: Any, plugged: Registry) -> None:
    plugged["broken"] = broken
    outcome = judge(reward(steps=steps(needed_calls=1.0, broken=1e-9)))
    assert isinstance(outcome.score, Invalid)
    assert (outcome.reward, outcome.steps) == (None, ())


def test_what_breaks_its_contract_is_invalid_and_never_raises() -> None:
    outcome = judge_outcome(TASK, "no deliverable", 7, calls=0, malformed=0, spec=reward())  # type: ignore[arg-type]
    assert outcome.score == Invalid(reason="attempt: deliverable, verdict is not what its contract says")


def test_acceptance_is_by_the_verifiers_that_the_manifest_names() -> None:
    spec = reward(acceptance=("target_tests", "visible_tests"))
    accepted = judge(spec, seen=verdict(regression=False))
    assert accepted.accepted
    assert isinstance(accepted.score, Scored)
    assert accepted.score.evidence.keys() >= {"target_tests", "visible_tests", "failed_gates"}
    assert not judge(spec, seen=verdict(target=False)).accepted
    with pytest.raises(RatchetError, match="acceptance verifier 'guess' is unknown"):
        judge(reward(acceptance=("guess",)))


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_an_outcome_is_monotone_in_each_part_and_each_veto_is_absolute_and_invalid_is_contagious(
    data: st.DataObject,
) -> None:
    """Through `judge_outcome` itself, with rules whose scores are drawn."""
    values = {name: data.draw(st.floats(0, 1)) for name in NAMES}
    raised = data.draw(st.sampled_from(NAMES))
    better = {**values, raised: data.draw(st.floats(values[raised], 1))}
    weights = {name: data.draw(st.floats(0.01, 10)) for name in NAMES}
    spec = Reward(
        parts=tuple(RewardPart(verifier=name, weight=weight) for name, weight in weights.items()),
        acceptance=("one",),
        gates=tuple(GATES),
        call_discount=data.draw(st.floats(0, 0.9)),
        malformed_penalty=data.draw(st.floats(0, 1)),
        steps=(StepPart(verifier="step", weight=1.0),),
    )
    calls, malformed = data.draw(st.integers(0, 30)), data.draw(st.integers(0, 5))
    veto = data.draw(st.sampled_from(sorted(GATES)))
    invalid = data.draw(st.sampled_from([*NAMES, "step", *sorted(GATES)]))

    def outcome(scores: dict[str, float], closed: str | None = None, lost: str | None = None) -> Outcome:
        with pytest.MonkeyPatch.context() as patch:
            rules, process = Registry("ratchet.verifiers"), Registry("ratchet.step_verifiers")
            for name in NAMES:
                rules[name] = _lost if lost == name else _constant(scores[name])
            process["step"] = _lost if lost == "step" else (lambda work: [Scored(value=0.5)] * 3)
            gates = {name: _lost if lost == name else _gate(name, name != closed) for name in GATES}
            patch.setattr(compose, "VERIFIERS", rules)
            patch.setattr(compose, "STEP_VERIFIERS", process)
            patch.setattr(compose, "GATES", gates)
            return judge(spec, calls=calls, malformed=malformed)

    low, high = outcome(values), outcome(better)
    assert low.reward is not None
    assert high.reward is not None
    assert low.reward <= high.reward + 1e-12
    assert low.accepted <= high.accepted
    closed = outcome(better, closed=veto)
    assert (closed.accepted, closed.violations) == (False, (veto,))
    assert closed.reward == pytest.approx(-spec.malformed_penalty * malformed)
    lost = outcome(better, lost=invalid)
    assert isinstance(lost.score, Invalid)
    assert (lost.reward, lost.steps, lost.accepted) == (None, (), False)


def _constant(value: float) -> Any:
    return lambda work: Scored(value=value)


def _gate(name: str, passed: bool) -> Any:
    return lambda work: GateResult(name=name, passed=passed)


def _lost(work: Attempt) -> Any:
    raise OSError("gone")


specs = st.builds(
    lambda parts, gates, acceptance, weights, discount, canaries: Reward(
        parts=tuple(RewardPart(verifier=name, weight=weight) for name, weight in parts.items()),
        gates=tuple(gates),
        acceptance=tuple(acceptance),
        steps=steps(**weights),
        call_discount=discount,
        canaries=tuple(canaries),
    ),
    st.dictionaries(st.sampled_from(["hidden_tests", "target_tests"]), st.sampled_from([1.0, 2.0]), min_size=1),
    st.lists(st.sampled_from(sorted(GATES)), unique=True),
    st.lists(st.sampled_from(["hidden_tests", "exact_match"]), unique=True, min_size=1),
    st.dictionaries(st.sampled_from(["needed_calls", "repair_process"]), st.sampled_from([0.0, 0.5, 1.0]), max_size=2),
    st.sampled_from([0.0, 0.1]),
    st.lists(st.sampled_from(["canary-1", "canary-2"]), unique=True),
)  # fmt: skip


def _meaning(spec: Reward) -> Any:
    """What a composition says, with what makes no difference taken out."""
    whole = sum(part.weight for part in spec.parts)
    return (
        {part.verifier: round(part.weight / whole, 9) for part in spec.parts},
        {part.verifier: part.weight for part in spec.steps if part.weight},
        set(spec.gates), set(spec.acceptance), spec.call_discount, set(spec.canaries),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(specs, specs)
def test_two_compositions_have_one_digest_exactly_where_they_say_the_same(one: Reward, other: Reward) -> None:
    assert (spec_digest(one) == spec_digest(other)) == (_meaning(one) == _meaning(other))
