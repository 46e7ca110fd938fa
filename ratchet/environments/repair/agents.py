"""Scripted agents: the first logs come from them, and they really act in the environment.

`random` picks tools blindly. `mediocre` is the incumbent's habits: it looks around first, then tries every fix in
turn, reading the report again around every test run and running failing tests twice. `expert` passes over some fixes
that do not fit the symptom by a rule of thumb, and wastes half as much. None of them sees the true fix or a hidden
test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

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
    """Look around, then try the fixes in order: read the report around every test run, run failing tests twice."""
    yield "run_tests"
    yield from _try_in_turn(rng, results, Habits(before=1.0, rerun=1.0, after=1.0, give_up=0.08), lambda rule: False)


def expert(task: Task, rng: random.Random, results: list[ToolResult]) -> Iterator[str]:
    """Try the fixes in order, passing over some of those that do not fit the symptom; waste fewer calls."""
    word = task.payload["symptom"]

    def skip(rule: str) -> bool:
        return word not in _PLAUSIBLE[RULES[rule].segment] and rng.random() < 0.35

    yield from _try_in_turn(rng, results, Habits(before=0.5, rerun=0.25, after=0.4, give_up=0.0), skip)


class Habits(NamedTuple):
    """How often an agent does what it need not: all of it costs calls."""

    before: float
    """Read the report again before running the tests."""
    rerun: float
    """Run failing tests once more."""
    after: float
    """Read the report again before reverting."""
    give_up: float
    """Hand in what does not pass."""


def _try_in_turn(
    rng: random.Random, results: list[ToolResult], habits: Habits, skip: Callable[[str], bool]
) -> Iterator[str]:
    while True:
        yield "next_fix"
        if results[-1].status != "ok":
            yield "submit"
            return
        if skip(results[-1].content.split()[1]):
            continue
        yield "apply_fix"
        if rng.random() < habits.before:
            yield "read_report"
        yield "run_tests"
        if results[-1].content != "passed all" and rng.random() < habits.rerun:
            yield "run_tests"
        if results[-1].content == "passed all" or rng.random() < habits.give_up:
            yield "submit"
            return
        if rng.random() < habits.after:
            yield "read_report"
        yield "revert"


AGENTS: dict[str, Agent] = {"random": random_agent, "mediocre": mediocre, "expert": expert}
