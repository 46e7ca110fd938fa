"""What the trainer is handed: pairs of one task, one order whatever was measured, and seeds of their own."""

from __future__ import annotations

import random
from functools import cache

from ratchet.contracts.environment import Task
from ratchet.contracts.policy import Decoding, Harness
from ratchet.contracts.score import Invalid, Scored, Unscored
from ratchet.contracts.trajectory import Agent, CallRecord, RatchetExtra, Step, Trajectory
from ratchet.loop.trainer import _numbered, as_it_acts, completion, pairs
from ratchet.methods import gspo, rloo
from ratchet.policies.checkpoint import STARTER, load_tokenizer
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.rollout import Rollout


@cache
def rendering() -> Rendering:
    return Rendering(load_tokenizer(STARTER))


def log(
    task: str, seed: int, score: float | None, tool: str, latency_s: float = 0.0, tenant: str = "t",
    report: str = "failing 1/4 low", **fields,
) -> Trajectory:  # fmt: skip
    call = CallRecord(tool_call_id="c", function_name=tool, arguments={})
    steps = [
        Step(step_id=1, source="user", message=report),
        Step(step_id=2, source="agent", message="", tool_calls=[call]),
    ]
    extra = RatchetExtra(
        tenant=tenant, grant_id="g", task_id=task, seed=seed, policy="p", latency_s=latency_s,
        score=Scored(value=score) if score is not None else Unscored(), **fields,
    )  # fmt: skip
    return Trajectory(agent=Agent(name="p", version="1"), steps=steps).with_ratchet(extra)


def said(ids: list[int], mask: list[int]) -> str:
    return rendering().tokenizer.decode([token for token, bit in zip(ids, mask, strict=True) if bit][:-1]).strip()


def test_an_accepted_run_is_paired_with_a_rejected_one_of_the_same_task() -> None:
    logs = [
        log("a", 0, 1.0, "submit"), log("a", 1, 0.0, "revert"), log("a", 2, 0.0, "run_tests"),
        log("b", 0, 1.0, "next_fix"), log("c", 0, 0.0, "edit_tests"),
    ]  # fmt: skip
    (pair,) = pairs(logs, rendering())
    assert said(pair.chosen_ids, pair.chosen_mask) == "submit"
    assert said(pair.rejected_ids, pair.rejected_mask) == "revert"
    assert pair.prompt_ids == rendering().sample(logs[0]).input_ids[: len(pair.prompt_ids)]


def test_no_pair_is_made_across_tenants_or_after_another_opening() -> None:
    mine, theirs = log("a", 0, 1.0, "submit", tenant="mine"), log("a", 1, 0.0, "revert", tenant="theirs")
    assert pairs([mine, theirs], rendering()) == []
    other = log("a", 2, 0.0, "revert", tenant="mine", report="failing 2/4 high")
    assert pairs([mine, theirs, other], rendering()) == []
    own = log("a", 3, 0.0, "run_tests", tenant="mine")
    (pair,) = pairs([mine, theirs, other, own], rendering())
    assert said(pair.rejected_ids, pair.rejected_mask) == "run_tests"


def test_what_is_not_scored_is_in_no_pair() -> None:
    broken = log("a", 1, None, "revert")
    invalid = broken.with_ratchet(broken.ratchet.model_copy(update={"score": Invalid(reason="sandbox: died")}))
    assert pairs([log("a", 0, 1.0, "submit"), broken, invalid], rendering()) == []


def test_the_order_of_learning_does_not_depend_on_measured_times() -> None:
    tools = ("submit", "revert", "run_tests", "next_fix")

    def made(times: random.Random) -> list[object]:
        logs = [
            log(task, seed, float(seed % 2), tools[seed], latency_s=times.random())
            for task in "abc"
            for seed in range(4)
        ]
        # In the order of their digests, as a dataset lists them.
        return pairs(sorted(logs, key=lambda one: one.digest), rendering())

    assert made(random.Random(1)) == made(random.Random(2)) == made(random.Random(3))


def test_episodes_of_one_task_draw_apart() -> None:
    tasks = {
        name: Task(
            task_id=name, prompt="p", repo="r", issue_id="i", segment="s", environment="e", environment_version="1"
        )
        for name in "ab"
    }
    found = [(task.task_id, seed) for task, seed in _numbered(tasks, ["a", "b", "a", "a", "b"])]
    assert found == [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 1)]


def test_a_policy_is_trained_at_the_temperature_that_it_acts_at() -> None:
    def harness(temperature: float) -> Harness:
        return Harness(tools=("submit",), max_calls=2, decoding=Decoding(temperature=temperature, top_p=0.5))

    assert as_it_acts(gspo.Settings(), harness(0.6)).temperature == 0.6
    assert as_it_acts(rloo.Settings(temperature=1.3), harness(0.6)).temperature == 1.3
    assert as_it_acts(rloo.Settings(), harness(0.0)).temperature == 1.0


def test_an_episode_without_a_turn_has_nothing_to_learn() -> None:
    task = Task(task_id="a", prompt="p", repo="r", issue_id="i", segment="s", environment="e", environment_version="1")
    assert completion(Rollout(task, 0, ["x"], [3, 1], [], None, "reset: died", 0.0)) == ([], [], [])
