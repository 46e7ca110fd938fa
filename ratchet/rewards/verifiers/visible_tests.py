"""The tests that the policy can see: a weak signal, kept to show what happens to a reward that trusts it."""

from __future__ import annotations

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.score import Invalid, Scored


def visible_tests(attempt: Attempt) -> Scored | Invalid:
    """They passed when they last ran. A policy can edit them."""
    passed = attempt.deliverable.visible_passed
    return Scored(value=float(passed is True), evidence={"visible": "not run last" if passed is None else passed})
