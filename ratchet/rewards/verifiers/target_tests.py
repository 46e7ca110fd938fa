"""The tests that show the bug pass."""

from __future__ import annotations

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.verifiers.suite import suite_score, verdict_of


def target_tests(attempt: Attempt) -> Scored | Invalid:
    """The tests that failed before pass."""
    return suite_score(attempt, verdict_of(attempt).target_passed)
