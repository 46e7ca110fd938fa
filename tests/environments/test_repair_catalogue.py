"""The catalogue: tasks that their own tests detect twice over, with the true fix on offer, the same for a seed."""

import ast
import json

import pytest

from ratchet.contracts.canonical import digest_bytes
from ratchet.contracts.environment import Task
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.catalogue import (
    EDIT_RADIUS,
    SOLUTION,
    VISIBLE,
    CatalogueSettings,
    build,
    helpers,
    program,
)
from ratchet.environments.repair.edits import SEGMENTS, Edit, apply
from ratchet.environments.repair.problems import Problem
from ratchet.rewards.distance import change_size
from ratchet.sandbox import Sandbox

SETTINGS = CatalogueSettings(tasks_per_problem=3)


def made(problems: list[Problem], sandbox: Sandbox, seed: int, **settings: int) -> list[Task]:
    chosen = SETTINGS.model_copy(update=settings)
    return list(build(problems, chosen, sandbox, seed=seed, name="repair", version="1"))


def test_the_same_seed_gives_the_same_tasks_and_another_seed_others(
    problems: list[Problem], sandbox: Sandbox, tasks: list[Task]
) -> None:
    own = {problem.name for problem in problems[:3]}
    again = made(problems[:3], sandbox, seed=1)
    assert [task.digest for task in again] == [task.digest for task in tasks if task.repo in own]
    other = made(problems[:3], sandbox, seed=2)
    assert {task.task_id for task in other} != {task.task_id for task in again}


def test_tasks_do_not_depend_on_the_problems_beside_theirs(problems: list[Problem], sandbox: Sandbox) -> None:
    alone = made(problems[2:3], sandbox, seed=1)
    together = made(problems[:3], sandbox, seed=1)
    assert alone
    assert [task.digest for task in together if task.repo == problems[2].name] == [task.digest for task in alone]


def test_identities_are_unique_and_every_segment_is_declared(tasks: list[Task]) -> None:
    assert len({task.task_id for task in tasks}) == len({task.issue_id for task in tasks}) == len(tasks) > 15
    assert {task.segment for task in tasks} <= set(SEGMENTS)
    assert all(json.loads(task.model_dump_json())["payload"] == task.payload for task in tasks)


def test_at_least_two_tests_detect_the_bug_and_one_of_them_is_hidden(
    tasks: list[Task], environment: RepairEnvironment, sandbox: Sandbox
) -> None:
    for task in tasks:
        problem = environment.problems[task.repo]
        source = task.payload["files"][SOLUTION]
        ran = sandbox.run(program(source, problem.entry_point, problem.tests, trusted=problem.source))
        failing = [test for test, one in zip(problem.tests, ran.outcomes, strict=True) if one.status != "passed"]
        assert [digest_bytes(test.encode()) for test in failing] == task.payload["target"]
        assert len(failing) >= 2
        visible = task.payload["visible"]
        assert visible[0] in failing
        assert set(failing) - set(visible)
        assert len(visible) == len(set(visible)) <= SETTINGS.visible_tests
        assert task.payload["failing"] == len(set(failing) & set(visible))


def test_the_true_fix_is_on_offer_once_and_small(tasks: list[Task], environment: RepairEnvironment) -> None:
    for task in tasks:
        problem, source = environment.problems[task.repo], task.payload["files"][SOLUTION]
        offers = [Edit(*offer) for offer in task.payload["fixes"]]
        restored = [apply(source, problem.entry_point, offer) == problem.source for offer in offers]
        assert sum(restored) == 1
        assert restored.index(True) == environment.true_fix(task)
        assert len(offers) == len(set(offers)) <= SETTINGS.fixes
        assert change_size(source, problem.source, at_most=EDIT_RADIUS) is not None


def test_the_place_of_the_true_fix_tells_nothing(tasks: list[Task], environment: RepairEnvironment) -> None:
    places = {environment.true_fix(task) for task in tasks}
    assert len(places) >= 5


def test_the_prompt_holds_the_report_and_all_the_code(tasks: list[Task]) -> None:
    for task in tasks:
        assert task.payload["files"][SOLUTION] in task.prompt
        assert task.issue_id in task.prompt
        assert task.payload["visible"][0].splitlines()[-1] in task.prompt
        assert task.payload["files"][VISIBLE] == "\n".join(task.payload["visible"])


def test_a_limit_on_tasks_per_problem_holds(problems: list[Problem], sandbox: Sandbox) -> None:
    assert len(made(problems[:2], sandbox, seed=1, tasks_per_problem=1)) == 2


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ("def f(x):\n    return x + 1", ("assert candidate(1) == 3",) * 4),
        ("def f(x):\n    return x", ("assert candidate(1) == 1",) * 4),
        ("def f(x):\n    return x + 1", ("assert candidate(1) == 2",)),
    ],
    ids=["its own tests fail", "nothing to edit", "one test only"],
)
def test_what_makes_no_task_makes_none(sandbox: Sandbox, source: str, tests: tuple[str, ...]) -> None:
    problem = Problem(name="p", entry_point="f", source=source, tests=tests)
    assert made([problem], sandbox, seed=1) == []


HELPED = "import math\nSCALE = 2\n\ndef poly(x):\n    return SCALE * x\n\ndef f(x):\n    return math.floor(x)"


@pytest.mark.parametrize(
    ("test", "given_names"),
    [
        ("assert candidate(1) == 1", set()),
        ("assert poly(candidate(1)) == 2", {"poly", "SCALE", "math"}),
        ("assert candidate(1) * SCALE == 2", {"poly", "SCALE", "math"}),
        ("assert math.ceil(candidate(1)) == 1", {"poly", "SCALE", "math"}),
        ("assert f(1) == 1", set()),
        ("assert 'poly' in str(candidate(1))", set()),
    ],
)
def test_helpers_are_given_where_a_test_mentions_one(test: str, given_names: set[str]) -> None:
    namespace: dict[str, object] = {}
    exec(helpers(HELPED, "f", (test,)), namespace)
    assert set(namespace) - {"__builtins__"} == given_names
    ast.parse(helpers(HELPED, "f", (test,)))
