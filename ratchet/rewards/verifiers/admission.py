"""Admission: before a reward judges anything, every verifier in it runs twice on a sample and must agree with itself.

Each rule sees every attempt twice, the second time in reverse order and as a fresh copy, so that a rule that draws,
reads a clock, counts its calls or depends on the identity of objects disagrees with itself. A rule that changes what it
reads is refused too, because whatever is judged after it would be judged otherwise. Verification itself (the hidden
tests) is run again where the caller gives it, on a sandbox that remembers nothing. A sample proves no rule
deterministic; it finds those that are not on what they were shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from ratchet.contracts.attempt import Attempt
from ratchet.contracts.canonical import canonical_json, digest
from ratchet.contracts.environment import Deliverable, Task, Verdict
from ratchet.contracts.evidence import Evidence
from ratchet.contracts.manifest import Reward
from ratchet.contracts.score import Invalid
from ratchet.deadline import Ended, Overdue, told, within
from ratchet.errors import RatchetError, SandboxError
from ratchet.rewards.compose import scored_by, step_parts, steps_scored_by, verifiers_of
from ratchet.rewards.identity import source_version
from ratchet.rewards.verifiers import STEP_VERIFIERS, VERIFIERS

Verify = Callable[[Task, Deliverable], Verdict]
Rule = Callable[[Attempt], Any]


class Admission(Evidence, owner="ratchet.rewards"):
    """Which rules judged the sample twice alike."""

    attempts: int = Field(ge=1, description="Attempts in the sample.")
    sample_digest: str = Field(description="Digest of the sample.")
    verifiers: dict[str, str] = Field(description="Admitted verifiers, with the digest of each.")
    step_verifiers: dict[str, str] = Field(description="Admitted step verifiers, with the digest of each.")
    verified: int = Field(ge=0, description="Attempts whose hidden verification was run again.")


def admit(attempts: Sequence[Attempt], spec: Reward, *, verify: Verify | None = None) -> Admission:
    """Run every verifier of a reward twice on a sample.

    Args:
        attempts: the sample: deliverables, and episodes where step verifiers are to be admitted.
        spec: the manifest's reward section.
        verify: the environment's verification, on a sandbox without a memory; None to leave it out.

    Raises:
        RatchetError: naming every rule that disagrees with itself or changes its input, and every one that could judge
            no attempt of the sample; or there is no sample.
    """
    if not attempts:
        raise RatchetError(
            "admission of verifiers", seen="0 attempts", rule="at least one is needed", remedy="sample some tasks"
        )
    judged = [attempt for attempt in attempts if isinstance(attempt.verdict, Verdict)]
    rules = {name: VERIFIERS[name] for name in verifiers_of(spec)}
    steps = {part.verifier: STEP_VERIFIERS[part.verifier] for part in step_parts(spec)}
    episodes = [attempt for attempt in judged if attempt.steps]
    refused = [*_verification(judged, verify)] if verify else []
    for name, rule in rules.items():
        refused += _asked("verifier", name, partial(scored_by, "verifier", name, rule), judged, spec.verifier_timeout_s)
    for name, rule in steps.items():
        refused += _asked(
            "step verifier", name, partial(steps_scored_by, name, rule), episodes, spec.verifier_timeout_s
        )
    if refused:
        raise RatchetError(
            "admission of verifiers",
            seen="; ".join(refused),
            rule="a verifier judges the same attempt alike each time, and changes nothing in it",
            remedy="correct the verifiers that are named, or take them out of the manifest's reward section",
        )
    return Admission.issue(
        attempts=len(attempts),
        sample_digest=digest([digest(attempt) for attempt in attempts]),
        verifiers=_versions(rules),
        step_verifiers=_versions(steps),
        verified=len(judged) if verify else 0,
    )


def refusals(kind: str, name: str, score: Rule, attempts: Sequence[Attempt]) -> list[str]:
    """Say why a rule is refused, in at most three sentences; nothing where it is not.

    The test kit of a verifier's author: `refusals("verifier", "mine", mine, attempts) == []`.

    Args:
        kind: `verifier` or `step verifier`.
        name: its name.
        score: the rule.
        attempts: what it is tried on; none of them is enough where the rule gives no score to any.
    """
    found, before = [], [canonical_json(attempt) for attempt in attempts]
    first = [canonical_json(score(attempt)) for attempt in attempts]
    changed = [
        attempt.task.task_id for attempt, was in zip(attempts, before, strict=True) if canonical_json(attempt) != was
    ]
    if changed:
        found.append(f"{kind} {name} changes the attempt that it reads (task {changed[0]})")
    second = [canonical_json(score(Attempt.model_validate_json(was))) for was in reversed(before)][::-1]
    differ = [number for number, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]]
    if differ:
        task = attempts[differ[0]].task.task_id
        found.append(f"{kind} {name} disagrees with itself on {len(differ)} of {len(attempts)} (task {task})")
    silent = [attempt for attempt in attempts if isinstance(score(attempt), Invalid)]
    if len(silent) == len(attempts):
        why = score(silent[0]).reason if silent else "the sample holds none that it reads"
        found.append(f"{kind} {name} scores no attempt of the sample: {why}")
    return found


def reopen_admission(data: bytes, source: str) -> Admission:
    """Read a stored admission back and verify its digest. Raises IntegrityError where it does not match."""
    return Admission.reopen(data, source)


def _asked(kind: str, name: str, score: Rule, attempts: Sequence[Attempt], limit_s: float) -> list[str]:
    """Say why a rule is refused, one that does not come back or ends the process among the reasons."""
    try:
        return refusals(kind, name, lambda attempt: within(limit_s, partial(score, attempt)), attempts)
    except (Overdue, Ended) as error:
        return [told(f"{kind} {name}", error)]


def _verification(attempts: Sequence[Attempt], verify: Verify) -> list[str]:
    """Run the hidden verification again; only the time that it takes may differ."""
    differ = []
    for attempt in attempts:
        try:
            again = verify(attempt.task, attempt.deliverable)
        except SandboxError:  # says nothing about the tests, and is counted where it matters
            continue
        timeless = [
            one.model_dump(exclude={"verifier_s"}) for one in (again, attempt.verdict) if isinstance(one, Verdict)
        ]
        if len(timeless) < 2 or timeless[0] != timeless[1]:
            differ.append(attempt.task.task_id)
    if not differ:
        return []
    return [f"the hidden verification disagrees with itself on {len(differ)} of {len(attempts)} (task {differ[0]})"]


def _versions(rules: Mapping[str, Rule]) -> dict[str, str]:
    return {name: source_version(rule) for name, rule in rules.items()}
