"""Reading the verdict of a test suite: every test of the task ran, once, and nothing else did.

The task pins its tests: `payload["suite"]` lists their digests. A test that was skipped, is missing, was renamed
(its digest is another one), was added or ran twice is a failure, whatever the verdict says of those that passed. A
task that pins nothing is only asked that some test ran.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.environment import Verdict
from ratchet.contracts.score import Invalid, Scored


def suite_score(attempt: Attempt, passed: bool) -> Scored:
    """Return 1 where `passed` and the tests that ran are those of the task, with the tests as evidence."""
    verdict = verdict_of(attempt)
    evidence: dict[str, Any] = {"tests": list(verdict.tests), "failed": verdict.failed}
    if not verdict.tests:
        return Scored(value=0.0, evidence={**evidence, "failed": "no test ran"})
    wrong = deviations(attempt)
    return Scored(value=float(passed and not wrong), evidence={**evidence, **wrong})


def deviations(attempt: Attempt) -> dict[str, list[str]]:
    """Return the digests of tests that did not run (`missing`) or are not the task's (`unexpected`), where there are
    any."""
    suite = attempt.task.payload.get("suite")
    if suite is None:
        return {}
    ran, pinned = Counter(verdict_of(attempt).tests), Counter(suite)
    found = {"missing": sorted((pinned - ran).elements()), "unexpected": sorted((ran - pinned).elements())}
    return {name: tests for name, tests in found.items() if tests}


def verdict_of(attempt: Attempt) -> Verdict:
    """Return the verdict. Raises ValueError where the attempt has none; the score is then invalid with its reason."""
    if isinstance(attempt.verdict, Invalid):
        raise ValueError(attempt.verdict.reason)
    return attempt.verdict
