"""Skipped, missing, renamed and added tests fail, by verdicts of the real environment in the real sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.environment import Deliverable, Task, Verdict
from ratchet.contracts.score import Scored
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.catalogue import SOLUTION
from ratchet.rewards.verifiers import VERIFIERS
from ratchet.sandbox import Execution, Program, Sandbox, TestOutcome

SUITES = ("hidden_tests", "target_tests", "regression_tests")
Change = Callable[[tuple[TestOutcome, ...]], tuple[TestOutcome, ...]]


class Tampered:
    """The real sandbox, with the outcomes of its executions changed on the way back."""

    def __init__(self, inner: Sandbox, change: Change) -> None:
        self.inner, self.change = inner, change
        self.limits, self.slots = inner.limits, inner.slots

    def run(self, program: Program) -> Execution:
        execution = self.inner.run(program)
        return execution.model_copy(update={"outcomes": self.change(execution.outcomes)})

    def run_many(self, programs: Sequence[Program]) -> list[Execution]:
        return [self.run(program) for program in programs]


def scores(environment: RepairEnvironment, task: Task, source: str) -> tuple[Verdict, dict[str, Scored]]:
    files = {**task.payload["files"], SOLUTION: source}
    work = Deliverable(submitted=True, files=files, visible_passed=True)
    verdict = environment.verify(task, work)
    found = {name: VERIFIERS[name](Attempt(task=task, deliverable=work, verdict=verdict)) for name in SUITES}
    return verdict, found


def test_the_suite_that_the_task_pins_is_what_runs(environment: RepairEnvironment, tasks: list[Task]) -> None:
    for task in tasks[:4]:
        verdict, found = scores(environment, task, environment.problems[task.repo].source)
        assert list(verdict.tests) == task.payload["suite"]
        assert [score.value for score in found.values()] == [1, 1, 1]


def _skip(outcomes: tuple[TestOutcome, ...]) -> tuple[TestOutcome, ...]:
    return (*outcomes[:-1], outcomes[-1].model_copy(update={"status": "not_run"}))


def _rename(outcomes: tuple[TestOutcome, ...]) -> tuple[TestOutcome, ...]:
    return (*outcomes[:-1], outcomes[-1].model_copy(update={"name": "renamed"}))


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (_skip, {"missing"}),
        (lambda outcomes: outcomes[1:], {"missing"}),
        (lambda outcomes: (), set()),
        (_rename, {"missing", "unexpected"}),
        (lambda outcomes: (*outcomes, outcomes[0].model_copy(update={"name": "added"})), {"unexpected"}),
        (lambda outcomes: (*outcomes, outcomes[0]), {"unexpected"}),
        (lambda outcomes: (outcomes[0], outcomes[0], *outcomes[2:]), {"missing", "unexpected"}),
    ],
    ids=["skipped", "missing", "none", "renamed", "added", "twice", "replaced"],
)
def test_a_suite_that_is_not_the_tasks_fails_though_every_test_that_ran_passed(
    change: Change, kinds: set[str], environment: RepairEnvironment, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tasks[0]
    monkeypatch.setattr(environment, "sandbox", Tampered(environment.sandbox, change))
    _, found = scores(environment, task, environment.problems[task.repo].source)
    for name, score in found.items():
        assert score.value == 0, name
        assert kinds == score.evidence.keys() & {"missing", "unexpected"}


EXITS = {
    "leaves at import": "import os\nos._exit(0)\n",
    "leaves in the first call": None,
    "says it passed": "import sys\nprint('all tests passed')\nsys.exit(0)\n",
    "does not parse": "def f(:\n",
    "never returns": "while True:\n    pass\n",
}


@pytest.mark.parametrize("how", EXITS)
def test_a_program_that_keeps_tests_from_running_fails(
    how: str, environment: RepairEnvironment, tasks: list[Task]
) -> None:
    task, entry = tasks[0], tasks[0].payload["entry_point"]
    correct = environment.problems[task.repo].source
    source = (EXITS[how] or f"import os\n{correct}\n_f = {entry}\ndef {entry}(*a, **k):\n    os._exit(0)\n") + correct
    if how == "leaves in the first call":
        source = f"import os\n{correct}\ndef {entry}(*a, **k):\n    os._exit(0)\n"
    verdict, found = scores(environment, task, source)
    assert len(verdict.tests) < len(task.payload["suite"]) or verdict.failed
    assert {name: score.value for name, score in found.items()} == dict.fromkeys(SUITES, 0.0)
