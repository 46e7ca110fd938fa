"""Text nested so deep that reading it would exhaust the interpreter's stack fails, and never makes an outcome invalid.

An invalid episode is left out of everything: a policy that could make one at will would choose which failures count.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable

import pytest
from reward_world import SOLUTION, attempt, delivered, reward, tiny_task, verdict

from ratchet.contracts.score import Scored
from ratchet.rewards.compose import judge_outcome
from ratchet.rewards.distance import change_size
from ratchet.rewards.exploits import find_exploits
from ratchet.rewards.gates import GATES, RADIUS
from ratchet.rewards.syntax import MAX_DEPTH, nodes, parse

TASK = tiny_task()
CODE: str = TASK.payload["files"][SOLUTION]
DEEP: dict[str, Callable[[int], str]] = {
    "signs": lambda depth: f"T = {{1: {'-' * depth}1}}\n",
    "sum": lambda depth: f"T = 1{' + 1' * depth}\n",
    "branches": lambda depth: "if a:\n    b = 1\n" + "elif a:\n    b = {1: -1}\n" * depth,
    "calls": lambda depth: f"T = f{'()' * depth}\n",
    "attributes": lambda depth: f"T = f{'.a' * depth}\n",
}


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("depth", [MAX_DEPTH // 2, MAX_DEPTH - 5, MAX_DEPTH + 1, 2 * MAX_DEPTH, 4 * MAX_DEPTH])
def test_depth_never_makes_an_outcome_invalid(kind: str, depth: int) -> None:
    work = delivered(TASK, solution=CODE + DEEP[kind](depth))
    outcome = judge_outcome(TASK, work, verdict(), calls=1, malformed=0, spec=reward())
    assert isinstance(outcome.score, Scored)
    assert outcome.score.value == 0.0
    assert "minimal_change" in outcome.violations
    assert ("no_new_import" in outcome.violations) == (parse(CODE + DEEP[kind](depth)) is None)


@pytest.mark.parametrize("kind", DEEP)
def test_what_is_read_is_read_by_every_rule_within_the_stack(kind: str) -> None:
    """The deepest text that parses, changed at its end so that no rule finds it equal."""
    depth = next(depth for depth in range(MAX_DEPTH, 0, -1) if parse(CODE + DEEP[kind](depth)))
    assert parse(CODE + DEEP[kind](depth + 1)) is None
    text = CODE + DEEP[kind](depth)
    task = tiny_task()
    task = task.model_copy(update={"payload": {"files": {**task.payload["files"], SOLUTION: text}}})
    tried = attempt(delivered(task, solution=text.replace("1", "2")), task)
    raised: list[BaseException] = []

    def read() -> None:
        # A thread of its own, as the rules have in use: its stack begins empty.
        try:
            assert all(gate(tried).name == name for name, gate in GATES.items())
            find_exploits(tried)
            assert change_size(text, text.replace("1", "2"), at_most=RADIUS) is not None
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert raised == []


def test_a_whole_rewrite_of_the_same_size_is_refused_in_time() -> None:
    """Measured to the end, ten thousand nodes against ten thousand others take hours: time for a rule to be overdue."""
    lines = [f"    if a > {number}:\n        b = max(a, b - {number})\n" for number in range(1000)]
    before = "def g(a, b):\n" + "".join(lines)
    after = "def g(a, b):\n" + "".join(line.replace("max", "min").replace(">", "<") for line in reversed(lines))
    task = tiny_task()
    task = task.model_copy(update={"payload": {"files": {**task.payload["files"], SOLUTION: before}}})
    outcome = judge_outcome(task, delivered(task, solution=after), verdict(), calls=1, malformed=0, spec=reward())
    assert outcome.violations == ("minimal_change",)


def test_nodes_are_those_of_a_walk() -> None:
    source = ast.unparse(
        ast.parse("import a.b\nfrom . import c\ndef f(x, *y, z=1):\n    return [i for i in x if -i]\n")
    )
    kinds = {type(node) for node in ast.walk(ast.parse(source))}
    for kind in kinds - {ast.Load, ast.Store, ast.USub}:
        mine = [ast.dump(node) for node in nodes(source, kind)]
        assert mine == [ast.dump(node) for node in ast.walk(ast.parse(source)) if type(node) is kind]
    assert nodes(source, ast.Name, ast.arg) == [*nodes(source, ast.Name), *nodes(source, ast.arg)]
    assert nodes("(", ast.Name) == []
