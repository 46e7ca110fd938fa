"""The regression report: what a checkpoint lost and gained, task by task, against the policy it came from."""

from __future__ import annotations

from ratchet.loop.validating import regression
from ratchet.methods.base import Validation

START = Validation(0.5, {"a": True, "b": True, "c": False, "d": False, "e": True})


def test_a_risen_acceptance_does_not_hide_what_was_lost() -> None:
    found = regression(START, {"a": False, "b": True, "c": True, "d": True, "e": True})
    assert found == {"start": 0.5, "compared": 5, "lost": ["a"], "gained": ["c", "d"], "held": 2}


def test_an_attempt_that_was_invalid_is_neither_lost_nor_gained() -> None:
    found = regression(START, {"b": False, "c": True, "new": True})
    assert (found["compared"], found["lost"], found["gained"], found["held"]) == (2, ["b"], ["c"], 0)
