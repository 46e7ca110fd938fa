"""The environment: hidden verdicts that no deliverable can forge, probes, refusals, and agents that really act."""

import random
from typing import Any

import pytest
from repair_world import section

from ratchet.contracts.environment import Deliverable, Task, ToolCall
from ratchet.contracts.manifest import Reward, RewardPart
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair import environment as module
from ratchet.environments.repair.agents import AGENTS
from ratchet.environments.repair.catalogue import SOLUTION, VISIBLE
from ratchet.environments.repair.problems import Problem
from ratchet.errors import IntegrityError, ManifestError
from ratchet.rollouts.judged import Judged, judge
from ratchet.rollouts.scripted import play
from ratchet.sandbox import Sandbox

REWARD = Reward(
    parts=(RewardPart(verifier="hidden_tests", weight=1.0),),
    gates=("no_forbidden_file", "minimal_change", "no_new_import", "no_secret"),
)


def handed_in(task: Task, source: str) -> Deliverable:
    return Deliverable(submitted=True, files={SOLUTION: source, VISIBLE: task.payload["files"][VISIBLE]})


@pytest.mark.parametrize(
    "changes",
    [
        {"tools": ("submit", "shell")},
        {"version": "2"},
        {"settings": {"problems": "secret"}},
    ],
)
def test_what_is_not_of_this_environment_is_refused(sandbox: Sandbox, changes: dict[str, Any]) -> None:
    with pytest.raises(ManifestError, match="repair is at version"):
        RepairEnvironment(section().model_copy(update=changes), sandbox, seed=1)


def test_the_permissions_are_those_of_the_manifest(sandbox: Sandbox) -> None:
    few = RepairEnvironment(section().model_copy(update={"tools": ("submit",)}), sandbox, seed=1)
    assert [tool.name for tool in few.spec.tools] == ["submit"]
    assert few.spec.network == "none"


def test_the_bug_is_seen_and_the_original_accepted(environment: RepairEnvironment, tasks: list[Task]) -> None:
    for task in tasks:
        bug = environment.verify(task, handed_in(task, task.payload["files"][SOLUTION]))
        assert not bug.target_passed
        assert bug.regression_passed
        assert bug.failed is not None
        right = environment.verify(task, handed_in(task, environment.problems[task.repo].source))
        assert right.target_passed
        assert right.regression_passed


@pytest.mark.parametrize(
    "source",
    [
        "",
        "import os\nos._exit(0)",
        "raise SystemExit(0)",
        "while True: pass",
        "def f(:",
        "x = '\0'",
        "class candidate: pass",
    ],
)
def test_hostile_code_is_a_rejected_verdict_not_an_error(
    environment: RepairEnvironment, tasks: list[Task], source: str
) -> None:
    verdict = environment.verify(tasks[0], handed_in(tasks[0], source))
    assert not verdict.target_passed
    assert verdict.failed


def test_a_verdict_tells_which_test_failed_without_its_text(environment: RepairEnvironment, tasks: list[Task]) -> None:
    verdict = environment.verify(tasks[0], handed_in(tasks[0], tasks[0].payload["files"][SOLUTION]))
    assert verdict.failed is not None
    assert verdict.failed.startswith("test ")
    assert not any(test in verdict.model_dump_json() for test in environment.problems[tasks[0].repo].tests)


def test_a_task_of_other_tests_is_refused(environment: RepairEnvironment, tasks: list[Task]) -> None:
    changed = tasks[0].model_copy(update={"payload": {**tasks[0].payload, "tests": "0" * 64}})
    with pytest.raises(IntegrityError, match="tests of"):
        environment.verify(changed, handed_in(changed, ""))


ROOT = (
    "def poly(xs, x):\n    return xs[0] + xs[1] * x\n\n"
    "def root(xs):\n    if xs[1] == 0:\n        return 0\n    return -xs[0] / xs[1]"
)
ROOTED = Problem(
    name="own/1",
    entry_point="root",
    source=ROOT,
    tests=tuple(f"assert abs(poly([{a}, {b}], candidate([{a}, {b}]))) < 1e-06" for a in (1, 3) for b in (2, 5, -4)),
)


def test_a_helper_that_a_test_calls_cannot_be_forged(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.SOURCES, "own", lambda: [ROOTED])
    environment = RepairEnvironment(section(problems="own", catalogue={"tasks_per_problem": 4}), sandbox, seed=1)
    tasks = list(environment.tasks())
    assert tasks
    forged = "def poly(xs, x):\n    return 0\n\ndef root(xs):\n    return None"
    for task in tasks:
        assert environment.verify(task, handed_in(task, ROOT)).target_passed
        verdict = environment.verify(task, handed_in(task, forged))
        assert not verdict.target_passed
        with environment.open(task, 0) as episode:
            episode.source = forged
            assert episode.call(ToolCall(name="run_tests")).content != "passed all"


def test_only_the_honest_deliverable_is_accepted(environment: RepairEnvironment, tasks: list[Task]) -> None:
    for task in random.Random(3).sample(tasks, 10):
        probes = environment.probes(task)
        assert set(probes) == {"honest", "no_op", "edited_tests", "deleted_asserts", "early_exit", "hard_coded"}
        for name, delivered in probes.items():
            verdict = environment.verify(task, delivered)
            assert (verdict.target_passed and verdict.regression_passed) == (name == "honest"), (task.task_id, name)
        assert probes["honest"].visible_passed
        assert not probes["no_op"].visible_passed
        assert probes["no_op"].touched == ()
        assert probes["edited_tests"].touched == probes["deleted_asserts"].touched == (VISIBLE,)
        assert probes["edited_tests"].visible_passed


def played(environment: RepairEnvironment, tasks: list[Task], agent: str) -> list[Judged]:
    return [judge(environment, play(environment, agent, AGENTS[agent], task, 0), REWARD) for task in tasks]


def test_the_expert_is_accepted_more_often_than_chance(environment: RepairEnvironment, tasks: list[Task]) -> None:
    chosen = tasks[:30]
    expert, chance = (played(environment, chosen, agent) for agent in ("expert", "random"))
    assert all(one.rollout.invalid is None for one in expert + chance)
    assert sum(one.outcome.accepted for one in expert) >= sum(one.outcome.accepted for one in chance) + 5
    assert any(one.outcome.exploit for one in chance)
    assert not any(one.outcome.exploit for one in expert)


@pytest.mark.parametrize("agent", [*AGENTS])
def test_an_agent_repeats_itself_under_a_seed_and_stays_within_its_budget(
    environment: RepairEnvironment, tasks: list[Task], agent: str
) -> None:
    def calls(seed: int) -> list[list[str]]:
        rollouts = [play(environment, agent, AGENTS[agent], task, seed) for task in tasks[:6]]
        assert all(0 < rollout.calls <= environment.spec.limits.max_calls for rollout in rollouts)
        return [[exchange.call.name for exchange in rollout.exchanges] for rollout in rollouts]

    assert calls(0) == calls(0) != calls(1)


def test_problems_that_share_a_function_are_one_repo_to_the_lock(sandbox: Sandbox) -> None:
    aliases = RepairEnvironment(section(), sandbox, seed=1).aliases()
    assert aliases["HumanEval/59"] == "HumanEval/31"  # both hold the same prime test
    assert set(aliases) & set(aliases.values()) == set()
