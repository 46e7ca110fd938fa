"""What worked before still works."""

from __future__ import annotations

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.verifiers.suite import suite_score, verdict_of


def regression_tests(attempt: Attempt) -> Scored | Invalid:
    """The tests that passed before still pass. A deliverable that changes nothing passes them."""
    return suite_score(attempt, verdict_of(attempt).regression_passed)
