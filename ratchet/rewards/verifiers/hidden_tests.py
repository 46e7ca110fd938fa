"""All hidden tests pass: the usual acceptance criterion."""

from __future__ import annotations

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.verifiers.suite import suite_score, verdict_of


def hidden_tests(attempt: Attempt) -> Scored | Invalid:
    """Target and regression tests pass. A verdict that contradicts itself is no verdict."""
    verdict = verdict_of(attempt)
    passed = verdict.target_passed and verdict.regression_passed
    if passed and verdict.failed is not None:
        return Invalid(reason=f"verifier hidden_tests: all tests pass and {verdict.failed!r} fails, in one verdict")
    return suite_score(attempt, passed)
