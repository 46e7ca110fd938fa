"""The loop admits every verifier before it audits or trains, and hands the trainer the score of each turn."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from loop_world import make_tasks, small_manifest

from ratchet.contracts.attempt import Attempt, CallStep
from ratchet.contracts.environment import Task, ToolCall, ToolResult
from ratchet.contracts.score import Scored
from ratchet.errors import RatchetError
from ratchet.loop import auditing, data
from ratchet.loop.context import open_run
from ratchet.loop.trainer import completion, rollout_sample, turns
from ratchet.methods.grpo_steps import checked_steps
from ratchet.rewards.compose import Outcome
from ratchet.rewards.verifiers import STEP_VERIFIERS, VERIFIERS
from ratchet.rewards.verifiers.admission import reopen_admission
from ratchet.rollouts.engine import Turn
from ratchet.rollouts.judged import Judged
from ratchet.rollouts.rollout import Exchange, Rollout

PROCESS = {
    "parts": [{"verifier": "hidden_tests", "weight": 1.0}],
    "gates": ["no_secret"],
    "steps": [{"verifier": "repair_process", "weight": 0.2}, {"verifier": "needed_calls", "weight": 0.0}],
}
_calls = itertools.count()


def moody(work: Attempt) -> Scored:
    """No two opinions of it are alike."""
    return Scored(value=1.0, evidence={"call": next(_calls)})


def fickle(work: Attempt) -> list[Scored]:
    """A step verifier of that kind."""
    return [Scored(value=1.0, evidence={"call": next(_calls)}) for _ in work.steps or ()]


def test_the_audit_of_a_reward_admits_its_verifiers_on_probes_and_real_episodes(ready: Path) -> None:
    with open_run(ready, small_manifest(reward=PROCESS)) as run:
        make_tasks(run)
        data.split_lock(run)
        stage = auditing.reward_audit(run)
        assert stage.figures["admitted"] == "hidden_tests, repair_process"
        place = run.name("verifier_admission.json")
        admitted = reopen_admission(run.store.read(place), place)
        assert admitted.verified == admitted.attempts > 4 * 6
        assert auditing.reward_audit(run).reused


@pytest.mark.parametrize(
    ("reward", "named"),
    [
        ({"parts": [{"verifier": "moody", "weight": 1.0}]}, "verifier moody disagrees with itself"),
        ({**PROCESS, "steps": [{"verifier": "fickle", "weight": 1.0}]}, "step verifier fickle disagrees with itself"),
    ],
)
def test_a_verifier_that_disagrees_with_itself_stops_the_loop_by_name(
    reward: dict[str, object], named: str, ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERIFIERS, "moody", moody)
    monkeypatch.setitem(STEP_VERIFIERS, "fickle", fickle)
    with open_run(ready, small_manifest(reward=reward)) as run:
        make_tasks(run)
        data.split_lock(run)
        with pytest.raises(RatchetError, match=named):
            auditing.reward_audit(run)
        assert not run.store.exists(run.name("reward_audit.json"))


def _exchange(read: list[int], sampled: list[int], name: str) -> Exchange:
    turn = Turn(sampled, [-1.0] * len(sampled), "stop")
    return Exchange(read, turn, ToolCall(name=name), ToolResult(content="x", status="ok"))


def test_each_sampled_token_is_of_its_turn_whatever_was_read_between() -> None:
    """Turns of several lengths; nothing was read before the third, so that its tokens touch those of the second."""
    task = Task(task_id="a", prompt="p", repo="r", issue_id="i", segment="s", environment="e", environment_version="1")
    exchanges = [
        _exchange([3, 4], [10, 11], "one"),
        _exchange([5, 6], [12], "two"),
        _exchange([], [13, 14], "three"),
    ]
    rollout = Rollout(task, 0, ["x"], [3, 4], exchanges, None, None, 0.0)
    assert turns(rollout) == [0, 0, -1, -1, 1, 2, 2]
    ids, mask, _ = completion(rollout)
    assert [turn >= 0 for turn in turns(rollout)] == [bool(bit) for bit in mask]
    scores = tuple(Scored(value=value) for value in (1.0, 0.0, 0.5))
    judged = Judged(rollout, Outcome(score=Scored(value=1.0), reward=1.0, steps=scores), 0.0)
    made = rollout_sample(judged, 0.2)
    assert made.steps is not None
    assert (made.steps.values, made.steps.weight, made.completion_ids) == ([1.0, 0.0, 0.5], 0.2, ids)
    checked_steps("episode 0", made)
    assert rollout_sample(judged, 0.0).steps is None


def test_the_calls_of_a_rollout_are_what_the_reward_reads() -> None:
    from ratchet.rollouts.judged import calls_of

    task = Task(task_id="a", prompt="p", repo="r", issue_id="i", segment="s", environment="e", environment_version="1")
    one = _exchange([3], [10], "one")
    assert calls_of(Rollout(task, 0, ["x"], [3], [one], None, None, 0.0)) == (
        CallStep(call=one.call, result=one.result),
    )
