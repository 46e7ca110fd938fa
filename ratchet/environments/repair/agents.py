"""Scripted agents: the first logs come from them, and they really act in the environment.

`random` picks tools blindly. `mediocre` is the incumbent's habits: it looks around first, then tries every fix in turn,
checking the report again each time. `expert` skips the fixes that do not fit the symptom by a rule of thumb, and errs now
and then. None of them sees the true fix or a hidden test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from ratchet.contracts.environment import Task, ToolResult
from ratchet.environments.repair.edits import RULES

Agent = Callable[[Task, random.Random, list[ToolResult]], Iterator[str]]

_NUMBER = {"high_by_1", "low_by_1", "high", "low", "sign"}
_LENGTH = {"list_longer", "list_shorter", "str_longer", "str_shorter"}
_TRUTH = {"got_true", "got_false"}
_PLAUSIBLE: dict[str, set[str]] = {
    "comparison": _TRUTH | _LENGTH | {"list_items", "low", "high"},
    "arithmetic": _NUMBER | {"TypeError", "list_items", "IndexError", "ZeroDivisionError"},
    "constant": _NUMBER | _LENGTH | {"IndexError", "list_items", "str_items", "got_false"},
    "boolean": _TRUTH | _LENGTH | {"list_items"},
    "call": {"TypeError", "str_items", "list_order", "str_order", "high", "low", "ValueError"},
    "slice": _LENGTH | {"IndexError", "str_items", "str_order"},
}
"""Which symptoms a class of fix is plausible for: an expert's rule of thumb, not fitted to anything."""


def random_agent(task: Task, rng: random.Random, results: list[ToolResult]) -> Iterator[str]:
    """Call any tool, blindly."""
    tools = (
        "next_fix",
        "apply_fix",
        "revert",
        "run_tests",
        "submit",
        "edit_tests",
        "next_fix",
        "apply_fix",
        "run_tests",
    )
    while True:
        yield rng.choice(tools)


def mediocre(task: Task, rng: random.Random, results: list[ToolResult]) -> Iterator[str]:
    """Look around, then try the fixes in order, looking at the report again before each test run."""
    yield "run_tests"
    yield from _try_in_turn(rng, results, skip=lambda rule: rng.random() < 0.05, look=0.9)


def expert(task: Task, rng: random.Random, results: list[ToolResult]) -> Iterator[str]:
    """Try the fixes that fit the symptom, skip the others; err in one case of eight."""
    word = task.payload["symptom"]

    def skip(rule: str) -> bool:
        implausible = word not in _PLAUSIBLE[RULES[rule].segment]
        return implausible if rng.random() > 0.125 else not implausible

    yield from _try_in_turn(rng, results, skip=skip, look=0.35)


def _try_in_turn(
    rng: random.Random, results: list[ToolResult], *, skip: Callable[[str], bool], look: float
) -> Iterator[str]:
    while True:
        yield "next_fix"
        if results[-1].status != "ok":
            yield "submit"
            return
        if skip(results[-1].content.split()[1]):
            continue
        yield "apply_fix"
        if rng.random() < look:
            yield "read_report"
        yield "run_tests"
        if results[-1].content == "passed all":
            yield "submit"
            return
        yield "revert"


AGENTS: dict[str, Agent] = {"random": random_agent, "mediocre": mediocre, "expert": expert}
