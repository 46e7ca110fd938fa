"""Deterministic verifiers: what a verdict is worth, in [0, 1], with evidence.

A verifier reads the deliverable and the verdict of the hidden tests and runs nothing itself. A missing or skipped test
is a failure: a verdict in which no test ran earns nothing. A verdict that contradicts itself is no verdict, and the
score is invalid. Another verifier is one more function in `VERIFIERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ratchet.contracts.environment import Deliverable, Verdict
from ratchet.contracts.score import Invalid, Scored

Verifier = Callable[[Deliverable, Verdict], Scored | Invalid]


def hidden_tests(deliverable: Deliverable, verdict: Verdict) -> Scored | Invalid:
    """Target and regression tests pass: the acceptance criterion."""
    passed = verdict.target_passed and verdict.regression_passed
    if passed and verdict.failed is not None:
        return Invalid(reason=f"verifier hidden_tests: all tests pass and {verdict.failed!r} fails, in one verdict")
    return _tests(passed, verdict)


def target_tests(deliverable: Deliverable, verdict: Verdict) -> Scored | Invalid:
    """The tests that show the bug pass."""
    return _tests(verdict.target_passed, verdict)


def regression_tests(deliverable: Deliverable, verdict: Verdict) -> Scored | Invalid:
    """The tests that passed before still pass. A deliverable that changes nothing passes them."""
    return _tests(verdict.regression_passed, verdict)


def visible_tests(deliverable: Deliverable, verdict: Verdict) -> Scored | Invalid:
    """The tests the policy could see passed when they last ran: a weak signal, which a policy can edit."""
    passed = deliverable.visible_passed
    return Scored(value=float(passed is True), evidence={"visible": "not run last" if passed is None else passed})


def _tests(passed: bool, verdict: Verdict) -> Scored:
    evidence: dict[str, Any] = {"tests": list(verdict.tests), "failed": verdict.failed}
    if not verdict.tests:
        return Scored(value=0.0, evidence={**evidence, "failed": "no test ran"})
    return Scored(value=float(passed), evidence=evidence)


VERIFIERS: dict[str, Verifier] = {
    rule.__name__: rule for rule in (hidden_tests, target_tests, regression_tests, visible_tests)
}
