"""The tasks of `repair`: one injected bug each, detected by the problem's own tests.

For every problem, single edits are drawn in a seeded order that goes round the bug classes; each mutant really runs
against all tests in the sandbox. A mutant that fewer than two tests detect, that runs into a limit, or that no quick
fix restores is no task: one failing test is shown, and another must stay hidden, or special-casing what is visible
would pass. The quick fixes that an episode can page through are the true one and plausible others, shuffled.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ratchet.contracts.canonical import digest, digest_bytes
from ratchet.contracts.environment import Task
from ratchet.contracts.model import Contract
from ratchet.environments.repair.edits import Edit, apply, edits, inverse
from ratchet.environments.repair.problems import Problem
from ratchet.environments.repair.symptoms import symptom
from ratchet.progress import task as progress
from ratchet.pyast import parse
from ratchet.rewards.distance import change_size
from ratchet.sandbox import Execution, Program, Sandbox, TestCase

SOLUTION, VISIBLE = "solution.py", "test_visible.py"
EDIT_RADIUS = 6
"""AST nodes that an honest fix may change; a mutant whose true fix is larger is no task."""

MAX_REFERENCE_CPU_S = 0.1
"""A problem whose correct solution takes longer is left out: its mutants run near the sandbox's limit, and whether they
hit it would depend on the machine. All but two of the usable problems take less than half of it."""


class CatalogueSettings(Contract):
    """How tasks are made; part of the manifest's digest through the environment's settings."""

    visible_tests: int = 4
    fixes: int = 10
    tasks_per_problem: int = 18


def program(source: str, entry_point: str, tests: Iterable[str], *, trusted: str) -> Program:
    """Return the sandbox program that runs `tests` against a module text.

    Args:
        source: the text under test.
        entry_point: the function under test.
        tests: assertions.
        trusted: module text that the helpers of the tests are taken from: never what a policy wrote.
    """
    return _program(source, entry_point, tuple(tests), trusted)


@lru_cache(maxsize=4096)
def _program(source: str, entry_point: str, tests: tuple[str, ...], trusted: str) -> Program:
    cases = tuple(TestCase(name=digest_bytes(test.encode())[:12], source=test) for test in tests)
    support = helpers(trusted, entry_point, tuple(case.source for case in cases))
    return Program(source=source, entry_point=entry_point, tests=cases, support=support)


@lru_cache(maxsize=4096)
def helpers(source: str, entry_point: str, tests: tuple[str, ...]) -> str:
    """Return what a module defines besides the entry point, where a test mentions any of it; else nothing.

    A helper that a test calls would else be the delivered program's to forge.
    """
    found = [node for node in parse(source).body if getattr(node, "name", None) != entry_point]
    names = {name for node in found for name in _defined(node)}
    mentioned = {node.id for test in tests for node in ast.walk(parse(test)) if isinstance(node, ast.Name)}
    return ast.unparse(ast.Module(body=found, type_ignores=[])) if names & mentioned else ""


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).split(".")[0] for alias in statement.names)
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def build(
    problems: Iterable[Problem], settings: CatalogueSettings, sandbox: Sandbox, *, seed: int, name: str, version: str
) -> Iterator[Task]:
    """Yield the tasks of every problem, in a fixed order for a seed."""
    problems = list(problems)
    with progress("running mutants against their tests", total=len(problems)) as tick:
        for problem in problems:
            yield from _tasks_of(problem, settings, sandbox, seed, name, version)
            tick()


def _tasks_of(
    problem: Problem, settings: CatalogueSettings, sandbox: Sandbox, seed: int, name: str, version: str
) -> Iterator[Task]:
    def against_all(source: str) -> Program:
        return program(source, problem.entry_point, problem.tests, trusted=problem.source)

    reference = sandbox.run(against_all(problem.source))
    if not reference.passed or reference.cpu_s > MAX_REFERENCE_CPU_S:
        return
    drawn = _round_robin(edits(problem.source, problem.entry_point), random.Random(f"{seed}/{problem.name}"))
    mutants: dict[str, Edit] = {}
    for edit in drawn:
        mutants.setdefault(apply(problem.source, problem.entry_point, edit), edit)
    mutants.pop(problem.source, None)
    made, pending = 0, list(mutants.items())
    while pending and made < settings.tasks_per_problem:
        batch, pending = pending[: settings.tasks_per_problem], pending[settings.tasks_per_problem :]
        ran = sandbox.run_many([against_all(source) for source, _ in batch])
        for (source, edit), execution in zip(batch, ran, strict=True):
            if made < settings.tasks_per_problem and execution.limit is None:
                task = _task(problem, source, edit, execution, settings, seed, name, version)
                if task is not None:
                    made += 1
                    yield task


def _round_robin(found: list[Edit], rng: random.Random) -> Iterator[Edit]:
    """Draw edits class by class, so that the frequent classes do not crowd out the rare ones."""
    by_class: dict[str, list[Edit]] = {}
    for edit in rng.sample(found, len(found)):
        by_class.setdefault(edit.segment, []).append(edit)
    while by_class:
        for segment in sorted(by_class):
            yield by_class[segment].pop()
            if not by_class[segment]:
                del by_class[segment]


def _task(
    problem: Problem,
    source: str,
    edit: Edit,
    execution: Execution,
    settings: CatalogueSettings,
    seed: int,
    name: str,
    version: str,
) -> Task | None:
    failing = [index for index, outcome in enumerate(execution.outcomes) if outcome.status != "passed"]
    if len(failing) < 2:
        return None
    fix = inverse(source, problem.entry_point, edit, problem.source)
    if fix is None or change_size(source, problem.source, at_most=EDIT_RADIUS) is None:
        return None
    identity = digest({"problem": problem.name, "source": source})[:10]
    rng = random.Random(f"{seed}/{identity}")
    shown, kept_hidden = rng.sample(failing, 2)
    others = [index for index in range(len(problem.tests)) if index not in (shown, kept_hidden)]
    visible = [shown, *rng.sample(others, min(settings.visible_tests - 1, len(others)))]
    offered = [other for other in edits(source, problem.entry_point) if other != fix]
    offered = rng.sample(offered, min(settings.fixes - 1, len(offered)))
    offered.insert(rng.randint(0, len(offered)), fix)
    word = symptom(problem.tests[shown], execution.outcomes[shown])
    tests = [problem.tests[index] for index in visible]
    got = execution.outcomes[shown].last_value or execution.outcomes[shown].exception or "no answer"
    issue = f"{problem.name}#{identity}"
    report = (
        f"Issue {issue}: `{problem.entry_point}` is wrong ({word}).\nFails: {tests[0].splitlines()[-1]}\nGot: {got}"
    )
    return Task(
        task_id=f"{problem.name}@{identity}",
        prompt=f"{report}\n\n```python\n{source}\n```",
        repo=problem.name,
        issue_id=issue,
        segment=edit.segment,
        payload={
            "entry_point": problem.entry_point,
            "files": {SOLUTION: source, VISIBLE: "\n".join(tests)},
            "visible": tests,
            "edit_radius": EDIT_RADIUS,
            "symptom": word,
            "failing": sum(index in failing for index in visible),
            "fixes": [list(offer) for offer in offered],
            "target": [digest_bytes(problem.tests[index].encode()) for index in failing],
            "suite": [digest_bytes(test.encode()) for test in problem.tests],
            "tests": digest(list(problem.tests)),
        },
        environment=name,
        environment_version=version,
    )
