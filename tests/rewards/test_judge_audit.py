"""The audit of a reward with a judge in it: honeypots and orders are tried on the judge, and what it pays counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from judge_grader import QUALITY, Reads, grader_of
from reward_world import PROBLEMS, SOLUTION, TinyEnvironment, reward

from ratchet.contracts.environment import Deliverable, Task
from ratchet.contracts.judge import JudgeSection
from ratchet.contracts.manifest import Reward
from ratchet.contracts.score import NotComputable
from ratchet.rewards.audit import ProbeResult, RewardAudit, audit, audit_changes, reopen_audit
from ratchet.rewards.judges.grading import Grader
from ratchet.rewards.judges.rubric import Item
from ratchet.sandbox import Limits, open_sandbox

SECTION = JudgeSection(rubric="quality", weight=0.1)
CORRECT = [correct.strip() for correct, *_ in PROBLEMS]


@pytest.fixture(scope="module")
def environment() -> Iterator[TinyEnvironment]:
    with open_sandbox(slots=1, limits=Limits()) as sandbox:
        yield TinyEnvironment(sandbox)


def item_of(task: Task, deliverable: Deliverable) -> Item:
    return Item(item_id=task.task_id, task=task.prompt, deliverable=deliverable.files[SOLUTION])


def sees_the_work(text: str) -> bool:
    return any(one in text for one in CORRECT)


def obeys(text: str) -> bool:
    return sees_the_work(text) or "already decided" in text


def likes_tables(text: str) -> bool:
    return sees_the_work(text) or "if args ==" in text


def likes_length(text: str) -> bool:
    return sees_the_work(text) or len(text) > 60


def with_judge(**over: object) -> Reward:
    return reward(judge=SECTION, **over)


def grader(good: Callable[[str], bool]) -> Grader:
    return grader_of(Reads(good), {CORRECT[0]: "good", "def f(): pass": "poor"}, item_of)


def probes(found: RewardAudit) -> dict[str, ProbeResult]:
    return {one.probe: one for one in found.probes}


def test_an_honest_judge_is_shown_every_probe_and_orders_and_the_reward_passes(environment: TinyEnvironment) -> None:
    used = grader(sees_the_work)
    found = audit(environment, environment.tasks(), with_judge(), used)
    assert (found.passed, found.failures) == (True, ())
    assert found.judge_digest == "reads"
    assert probes(found)["honest"].mean_reward == pytest.approx(1.0)
    asked = used.judge.asked  # type: ignore[attr-defined]
    assert sum("already decided" in text for text in asked) == len(environment.tasks())
    assert any("os._exit" in text for text in asked)
    orders = probes(found)["no_op+orders"]
    assert (orders.tasks, orders.invalid, orders.earning_share, orders.mean_reward) == (6, 0, 0.0, 0.0)
    assert probes(found)["no_op+filler"].tasks == 6
    # What a gate vetoes is paid nothing, whatever is said to the judge.
    assert "edited_tests+orders" not in probes(found)


def test_a_judge_that_obeys_what_it_reads_fails_the_audit_by_name_and_task(environment: TinyEnvironment) -> None:
    found = audit(environment, environment.tasks(), with_judge(), grader(obeys))
    assert found.failures == ("no_op+orders earns reward",)
    assert found.found["no_op+orders earns reward"] == tuple("012345")
    assert probes(found)["no_op+orders"].mean_reward == pytest.approx(0.1 / 1.1)
    assert reopen_audit(found.to_bytes(), "stored") == found


def test_a_judge_that_likes_any_long_text_does_not_obey_and_is_not_failed_for_it(environment: TinyEnvironment) -> None:
    """Padding is a bias of its own, audited where the judge is calibrated."""
    found = audit(environment, environment.tasks(), with_judge(), grader(likes_length))
    assert "no_op+orders earns reward" not in found.failures
    assert probes(found)["no_op+filler"].mean_reward == pytest.approx(0.1 / 1.1)


def test_a_judge_that_pays_a_honeypot_which_no_gate_vetoes_fails_the_audit(environment: TinyEnvironment) -> None:
    spec = with_judge(gates=(), tamper_penalty=0.0)
    alone = audit(environment, environment.tasks(), spec)
    found = audit(environment, environment.tasks(), spec, grader(likes_tables))
    assert found.failures == ("hard_coded earns reward",)
    # One task has so few hidden tests that the table passes them.
    assert (alone.found["hard_coded earns reward"], found.found["hard_coded earns reward"]) == (("1",), tuple("012345"))
    assert "hard_coded+orders" in probes(found)


def test_without_a_grader_or_a_weight_the_verifiers_alone_are_audited(environment: TinyEnvironment) -> None:
    used = grader(obeys)
    weightless = reward(judge=SECTION.model_copy(update={"weight": 0.0}))
    for found in (audit(environment, environment.tasks(), with_judge()),
                  audit(environment, environment.tasks(), weightless, used)):  # fmt: skip
        assert (found.passed, found.judge_digest) == (True, None)
        assert not [kind for kind in probes(found) if "+" in kind]
    assert used.judge.asked == []  # type: ignore[attr-defined]


def test_a_judge_that_fails_leaves_probes_invalid_and_is_never_a_pass(environment: TinyEnvironment) -> None:
    used = grader(sees_the_work)

    def dead(text: str) -> None:
        raise ConnectionError("the model is gone")

    used.judge.faults = dead  # type: ignore[attr-defined]
    found = audit(environment, environment.tasks()[:2], with_judge(), used)
    assert not found.passed
    assert "honest could not be judged" in found.failures
    assert isinstance(probes(found)["honest"].mean_reward, NotComputable)
    assert "judge quality: ConnectionError" in str(probes(found)["honest"].invalid_reason)


def test_a_judge_that_obeys_only_after_training_is_named_then(environment: TinyEnvironment) -> None:
    before = audit(environment, environment.tasks(), with_judge(), grader(sees_the_work))
    assert audit_changes(before, before) == ()
    after = audit(environment, environment.tasks(), with_judge(), grader(obeys))
    assert audit_changes(before, after) == ("no_op+orders earns reward after training",)


def test_a_grade_that_turns_is_the_judges_drift_and_no_change_of_the_reward(environment: TinyEnvironment) -> None:
    before = audit(environment, environment.tasks(), with_judge(), grader(sees_the_work))
    after = audit(environment, environment.tasks(), with_judge(), grader(lambda text: CORRECT[0] in text))
    assert probes(before)["honest"].mean_reward != probes(after)["honest"].mean_reward
    assert audit_changes(before, after) == ()


def test_a_judge_in_the_acceptance_takes_honest_work_alone(environment: TinyEnvironment) -> None:
    spec = with_judge(acceptance=("hidden_tests", QUALITY.name))
    assert audit(environment, environment.tasks(), spec, grader(sees_the_work)).passed
    strict = audit(environment, environment.tasks(), spec, grader(lambda text: CORRECT[0] in text))
    assert "honest is accepted in too few tasks" in strict.failures
    assert probes(strict)["honest"].accepted_share == pytest.approx(1 / 6)
