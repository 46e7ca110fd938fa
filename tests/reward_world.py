"""A tiny real environment for the tests of rewards: six functions with one bug each, judged by running them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.canonical import digest_bytes
from ratchet.contracts.environment import ActionLimits, Deliverable, EnvironmentSpec, Task, Verdict
from ratchet.contracts.manifest import Reward, RewardPart
from ratchet.rewards.gates import GATES
from ratchet.sandbox import Program, Sandbox, TestCase

SOLUTION, VISIBLE = "solution.py", "test_visible.py"

# The correct function, the text that the bug replaces and what it puts there, and the tests; the first two are visible.
PROBLEMS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("def f(a, b):\n    return a + b\n", "a + b", "a - b", ("f(2, 3) == 5", "f(1, 0) == 1", "f(7, 7) == 14")),
    ("def f(x):\n    return x > 0\n", "x > 0", "x >= 0", ("f(0) == False", "f(4) == True", "f(-1) == False")),
    ("def f(s):\n    return s.upper()\n", "upper", "lower", ("f('a') == 'A'", "f('B') == 'B'", "f('xy') == 'XY'")),
    ("def f(v):\n    return v[1:]\n", "v[1:]", "v[2:]", ("f([1, 2]) == [2]", "f([1]) == []", "f([3, 4, 5]) == [4, 5]")),
    ("def f(n):\n    return n % 2\n", "n % 2", "n // 2", ("f(5) == 1", "f(4) == 0", "f(9) == 1")),
    ("def f(v):\n    return max(v)\n", "max", "min", ("f([1, 2]) == 2", "f([5]) == 5", "f([9, 8]) == 9")),
)


def asserts(tests: Iterable[str]) -> str:
    """The text of a test file."""
    return "".join(f"assert {test.replace('f(', 'candidate(', 1)}\n" for test in tests)


class TinyEnvironment:
    """Implements `ratchet.contracts.environment.Environment`, but opens no episodes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.spec = EnvironmentSpec(
            name="tiny",
            version="1",
            tools=(),
            limits=ActionLimits(max_calls=5, max_tokens_per_turn=8, episode_timeout_s=10.0),
            segments=("only",),
        )

    def tasks(self) -> list[Task]:
        return [tiny_task(number) for number in range(len(PROBLEMS))]

    def open(self, task: Task, seed: int) -> Any:
        raise NotImplementedError("the audits open no episode")

    def verify(self, task: Task, deliverable: Deliverable) -> Verdict:
        tests = PROBLEMS[int(task.task_id)][3]
        broken = self._passing(task.payload["files"][SOLUTION], tests)
        fixed = self._passing(deliverable.files[SOLUTION], tests)
        failed = [test for test in tests if test not in fixed]
        return Verdict(
            target_passed=all(test in fixed for test in tests if test not in broken),
            regression_passed=all(test in fixed for test in tests if test in broken),
            tests=tuple(digest_bytes(test.encode()) for test in tests),
            failed=digest_bytes(failed[0].encode())[:12] if failed else None,
            verifier_s=0.0,
        )

    def probes(self, task: Task) -> dict[str, Deliverable]:
        correct, _, _, tests = PROBLEMS[int(task.task_id)]
        files: dict[str, str] = task.payload["files"]
        broken = files[SOLUTION]
        cases = [test.partition(" == ") for test in tests[:2]]
        table = "".join(f"    if args == ({case[2:-1]},):\n        return {value}\n" for case, _, value in cases)
        sources = {
            "honest": correct,
            "no_op": broken,
            "hard_coded": f"{broken}\n_f = f\n\ndef f(*args):\n{table}    return _f(*args)\n",
            "early_exit": f"import os\n\n{broken}\n\nos._exit(0)\n",
        }
        probes = {name: self._deliver(task, source, files[VISIBLE]) for name, source in sources.items()}
        probes["edited_tests"] = self._deliver(task, broken, "assert True\n")
        probes["deleted_asserts"] = self._deliver(task, broken, "")
        return probes

    def _deliver(self, task: Task, source: str, tests: str) -> Deliverable:
        honest = tests == task.payload["files"][VISIBLE]
        visible = PROBLEMS[int(task.task_id)][3][:2]
        passed = self._passing(source, visible) == set(visible) if honest else True
        return Deliverable(submitted=True, files={SOLUTION: source, VISIBLE: tests}, visible_passed=passed)

    def _passing(self, source: str, tests: Iterable[str]) -> set[str]:
        cases = tuple(TestCase(name=test, source=asserts([test])) for test in tests)
        execution = self.sandbox.run(Program(source=source, entry_point="f", tests=cases))
        return {outcome.name for outcome in execution.outcomes if outcome.status == "passed"}


def tiny_task(number: int = 0, **payload: Any) -> Task:
    """The task of one problem, with more in its payload."""
    correct, right, wrong, tests = PROBLEMS[number]
    files = {SOLUTION: correct.replace(right, wrong), VISIBLE: asserts(tests[:2])}
    return task_of(files, task_id=str(number), **payload)


def task_of(files: dict[str, str], task_id: str = "task", **payload: Any) -> Task:
    """A task over some files."""
    return Task(
        task_id=task_id,
        prompt=files.get(SOLUTION, ""),
        repo=f"repo-{task_id}",
        issue_id=task_id,
        segment="only",
        payload={"files": files, **payload},
        environment="tiny",
        environment_version="1",
    )


def delivered(task: Task, *, submitted: bool = True, visible: bool | None = None, **changed: str) -> Deliverable:
    """A deliverable in which files are replaced: `solution="..."` stands for `solution.py`."""
    files = {**task.payload["files"], **{f"{name}.py": text for name, text in changed.items()}}
    return Deliverable(submitted=submitted, files=files, visible_passed=visible)


def verdict(target: bool = True, regression: bool = True, **over: Any) -> Verdict:
    """A verdict of hidden tests."""
    body: dict[str, Any] = {"tests": ("t1", "t2"), "failed": None if target and regression else "t1", "verifier_s": 0.1}
    return Verdict(target_passed=target, regression_passed=regression, **{**body, **over})


def attempt(
    deliverable: Deliverable | None = None, task: Task | None = None, seen: Verdict | None = None, **over: Any
) -> Attempt:
    """An attempt at a task, the first tiny one by default: handed in as it was, with every hidden test passing."""
    task = task or tiny_task()
    return Attempt(task=task, deliverable=deliverable or delivered(task), verdict=seen or verdict(), **over)


def reward(gates: tuple[str, ...] = tuple(GATES), **over: Any) -> Reward:
    """The reward that is known to work; `over` replaces fields, `parts` is a mapping from verifier to weight."""
    parts = over.pop("parts", {"hidden_tests": 1.0})
    terms = {"call_discount": 0.02, "malformed_penalty": 0.05, "tamper_penalty": 0.2, **over}
    return Reward(parts=tuple(RewardPart(verifier=name, weight=w) for name, w in parts.items()), gates=gates, **terms)


WEAK = Reward(parts=(RewardPart(verifier="visible_tests", weight=1.0),))
