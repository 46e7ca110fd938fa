"""A judge in the composition: it pays its share, accepts only beside verifiers, and is asked for nothing else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_grader import Reads, grader_of
from reward_world import SOLUTION, delivered, reward, tiny_task, verdict

from ratchet.contracts.environment import Deliverable, Task, Verdict
from ratchet.contracts.judge import JudgeSection
from ratchet.contracts.manifest import Reward
from ratchet.contracts.score import Invalid
from ratchet.errors import RatchetError
from ratchet.rewards.compose import Outcome, judge_outcome, spec_digest, verifiers_alone, verifiers_of
from ratchet.rewards.judges.grading import Grader
from ratchet.rewards.judges.rubric import Item
from ratchet.rollouts.judged import judge_all
from ratchet.rollouts.rollout import Rollout

TASK = tiny_task()
SOURCE: str = TASK.payload["files"][SOLUTION].replace("a - b", "a + b")
FIX = delivered(TASK, solution=SOURCE, visible=True)
SECTION = JudgeSection(rubric="quality", weight=0.25)


def item_of(task: Task, deliverable: Deliverable) -> Item:
    return Item(item_id=task.task_id, task=task.prompt, deliverable=deliverable.files[SOLUTION])


def grader(good: bool = True) -> Grader:
    found = grader_of(Reads(lambda text: "a + b" in text), {SOURCE: "good", "pass": "poor"}, item_of)
    if not good:
        found.judge.good = lambda text: False  # type: ignore[attr-defined]
    return found


def outcome(spec: Reward, seen: Verdict | None = None, work: Deliverable = FIX, good: bool = True) -> Outcome:
    grade = grader(good).grade(TASK, work) if work.submitted else None
    return judge_outcome(TASK, work, seen or verdict(), calls=0, malformed=0, spec=spec, grade=grade)


def accepting(**over: Any) -> Reward:
    return reward(judge=SECTION, acceptance=("hidden_tests", "quality"), **over)


def test_acceptance_asks_for_the_best_grade_where_the_rubric_is_named_and_for_none_where_it_is_not() -> None:
    assert outcome(accepting()).accepted
    assert not outcome(accepting(), good=False).accepted
    assert outcome(reward(judge=SECTION), good=False).accepted


def test_the_best_grade_never_stands_in_for_the_tests() -> None:
    assert not outcome(accepting(), verdict(target=False)).accepted
    assert outcome(accepting(), verdict(target=False)).reward == pytest.approx(0.25 / 1.25)


def test_the_evidence_of_an_acceptance_holds_what_the_judge_said() -> None:
    score = outcome(accepting()).score
    assert score.evidence["quality"] == {"rubric": "quality", "category": "good", "reason": "read"}  # type: ignore[union-attr]
    assert score.evidence["hidden_tests"]["failed"] is None  # type: ignore[union-attr]


def test_what_was_not_handed_in_is_rejected_without_asking_the_judge() -> None:
    found = outcome(accepting(), work=delivered(TASK, submitted=False))
    assert (found.accepted, found.reward) == (False, 0.0)


def test_acceptance_by_a_judge_of_no_weight_still_needs_its_grade() -> None:
    spec = reward(judge=SECTION.model_copy(update={"weight": 0.0}), acceptance=("hidden_tests", "quality"))
    assert outcome(spec).accepted
    assert not outcome(spec, good=False).accepted
    assert outcome(spec, good=False).reward == 1.0
    with pytest.raises(RatchetError, match="no grade by a calibrated judge"):
        judge_outcome(TASK, FIX, verdict(), calls=0, malformed=0, spec=spec)


def test_acceptance_that_rests_on_a_judge_alone_is_refused() -> None:
    spec = reward(judge=SECTION, acceptance=("quality",))
    with pytest.raises(RatchetError, match="rests on the judge of 'quality' alone"):
        outcome(spec)
    with pytest.raises(RatchetError, match="'quality' is unknown"):
        judge_outcome(TASK, FIX, verdict(), calls=0, malformed=0, spec=verifiers_alone(spec))


def test_verifiers_alone_leaves_the_conditions_that_are_verifiers() -> None:
    spec = accepting()
    assert verifiers_alone(spec).acceptance == ("hidden_tests",)
    assert verifiers_of(spec) == ["hidden_tests"]
    assert spec_digest(spec) != spec_digest(reward(judge=SECTION)) != spec_digest(verifiers_alone(spec))


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 10), st.booleans(), st.booleans())
def test_a_better_grade_never_lowers_the_reward_and_a_veto_is_absolute(
    weight: float, target: bool, vetoed: bool
) -> None:
    spec = reward(judge=SECTION.model_copy(update={"weight": weight}))
    work = delivered(TASK, solution=SOURCE, test_visible="assert True\n", visible=True) if vetoed else FIX
    good, poor = (outcome(spec, verdict(target=target), work, one).reward for one in (True, False))
    assert good is not None
    assert poor is not None
    assert good >= poor
    if vetoed:
        assert good == poor <= 0.0


class Verifies:
    """As much of an environment as judging needs: every deliverable passes, but those that verification breaks on."""

    spec = None

    def verify(self, task: Task, deliverable: Deliverable) -> Verdict:
        if "broken" in deliverable.files[SOLUTION]:
            raise OSError("verifier died")
        return verdict()


def rollout(work: Deliverable | None, invalid: str | None = None) -> Rollout:
    return Rollout(TASK, 0, [], [], [], work, invalid, 0.0)


def test_a_judge_is_asked_once_for_what_was_handed_in_and_verified_and_for_nothing_else() -> None:
    used, spec = grader(), accepting()
    works = [
        rollout(FIX), rollout(delivered(TASK, submitted=False)), rollout(None, "reset: died"),
        rollout(delivered(TASK, solution="broken")),
    ]  # fmt: skip
    environment: Any = Verifies()
    with ThreadPoolExecutor(2) as pool:
        judged = judge_all(environment, works, spec, pool, used)
        alone = judge_all(environment, works, spec, pool)
    assert [one.judge_calls for one in judged] == [1, 0, 0, 0]
    assert used.judge.asked == [SOURCE]  # type: ignore[attr-defined]
    assert judged[0].outcome.evidence["parts"]["quality"]["value"] == 1.0
    assert [isinstance(one.outcome.score, Invalid) for one in judged] == [False, False, True, True]
    assert [one.judge_calls for one in alone] == [0, 0, 0, 0]
    assert [one.outcome.accepted for one in alone] == [True, False, False, False]
