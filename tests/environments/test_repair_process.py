"""Step scores of `repair` over real episodes: what each call found out, and the failing test of the last run."""

from __future__ import annotations

import random

from ratchet.contracts.attempt import Attempt, CallStep
from ratchet.contracts.environment import Deliverable, Task, ToolCall
from ratchet.contracts.score import Invalid, Scored
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.episode import TOOLS
from ratchet.environments.repair.process import repair_process
from ratchet.rewards.verifiers import STEP_VERIFIERS
from ratchet.rewards.verifiers.needed_calls import needed_calls


def play(environment: RepairEnvironment, task: Task, *calls: str | ToolCall) -> Attempt:
    """Make the calls in a real episode."""
    steps = []
    with environment.open(task, 0) as episode:
        for one in calls:
            call = one if isinstance(one, ToolCall) else ToolCall(name=one)
            steps.append(CallStep(call=call, result=episode.call(call)))
        delivered: Deliverable = episode.deliverable()
    return Attempt(task=task, deliverable=delivered, verdict=Invalid(reason="not verified"), steps=tuple(steps))


def values(attempt: Attempt) -> list[float]:
    scores = repair_process(attempt)
    assert not isinstance(scores, Invalid)
    return [score.value for score in scores]


def solved(environment: RepairEnvironment, task: Task) -> list[str]:
    return [*["next_fix"] * (environment.true_fix(task) + 1), "apply_fix", "run_tests", "submit"]


def test_the_shortest_repair_needs_every_call(environment: RepairEnvironment, tasks: list[Task]) -> None:
    for task in tasks[:6]:
        attempt = play(environment, task, *solved(environment, task))
        assert values(attempt) == [1.0] * len(attempt.steps or ())


def test_repetitions_are_redundant_and_the_failing_test_is_named(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    task = tasks[0]
    attempt = play(environment, task, "run_tests", "run_tests", "read_report", "view_code", "view_code", "submit")
    scores = repair_process(attempt)
    assert not isinstance(scores, Invalid)
    assert [score.value for score in scores] == [1, 0, 0, 1, 0, 0]
    shown = (attempt.steps or ())[0].result.content
    assert shown.startswith("failing")
    assert [score.evidence["failing"] for score in scores] == [shown] * 6
    assert scores[1].evidence["why"] == "redundant: this code was tested"
    assert scores[5].evidence["why"] == "premature: the tests fail"


def test_a_fix_that_passes_may_not_be_taken_back_nor_an_untested_one_judged(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    task = tasks[0]
    found = solved(environment, task)[:-1]
    assert values(play(environment, task, *found, "revert", "submit"))[-2:] == [0, 0]
    calls = ("next_fix", "apply_fix", "revert", "apply_fix", "run_tests", "run_tests")
    assert values(play(environment, task, *calls)) == [1, 1, 0, 0, 1, 0]


def test_edited_tests_earn_nothing_and_make_later_runs_worthless(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    assert values(play(environment, tasks[0], "edit_tests", "run_tests", "submit")) == [0, 0, 0]


def test_malformed_refused_and_failing_calls_earn_nothing(environment: RepairEnvironment, tasks: list[Task]) -> None:
    calls = (ToolCall(name="", malformed="x"), "shell", "apply_fix", "revert", ToolCall(name="edit_line"))
    scores = repair_process(play(environment, tasks[0], *calls))
    assert not isinstance(scores, Invalid)
    assert [(score.value, score.evidence["why"]) for score in scores] == [
        (0, "malformed"), (0, "tool_not_permitted"), (0, "error"), (0, "error"), (0, "error"),
    ]  # fmt: skip


def test_the_code_is_followed_as_the_episode_changes_it(environment: RepairEnvironment, tasks: list[Task]) -> None:
    """Random episodes: a run called needed is on code that was not tested before, and the other way round."""
    for seed in range(12):
        rng, task, tested, steps = random.Random(seed), tasks[seed % len(tasks)], set(), []
        expected = []
        with environment.open(task, 0) as episode:
            for _ in range(18):
                name = rng.choice(["next_fix", "apply_fix", "revert", "run_tests", "run_tests", "edit_line"])
                arguments = {"line": 1, "text": episode.source.split("\n")[0] + " " * rng.randint(0, 1)}
                call = ToolCall(name=name, arguments=arguments if name == "edit_line" else {})
                before = episode.source
                steps.append(CallStep(call=call, result=episode.call(call)))
                expected.append(name == "run_tests" and before not in tested)
                tested |= {before} if name == "run_tests" else set()
        done = Attempt(task=task, deliverable=episode.deliverable(), verdict=Invalid(reason="-"), steps=tuple(steps))
        scores = repair_process(done)
        assert not isinstance(scores, Invalid)
        for step, score, new in zip(steps, scores, expected, strict=True):
            # Two ways to the same text are two changes to the follower: it may call more runs needed, never fewer.
            assert step.call.name != "run_tests" or score.value >= float(new)


def test_any_sequence_of_calls_has_one_score_per_step(environment: RepairEnvironment, tasks: list[Task]) -> None:
    for seed in range(8):
        calls = random.Random(seed).choices([*TOOLS, "shell"], k=20)
        attempt = play(environment, tasks[1], *calls)
        for name in STEP_VERIFIERS:
            found = STEP_VERIFIERS[name](attempt)
            assert len(found) == len(attempt.steps or ())
            assert all(isinstance(score, Scored) for score in found)


def test_the_general_score_knows_repetition_and_failure_alone(
    environment: RepairEnvironment, tasks: list[Task]
) -> None:
    scores = needed_calls(play(environment, tasks[0], "run_tests", "run_tests", "next_fix", "shell", "submit"))
    assert not isinstance(scores, Invalid)
    assert [score.value for score in scores] == [1, 0, 1, 0, 1]
