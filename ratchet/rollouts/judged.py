"""A rollout with its verdict: the one place where training, evaluation and log making score an episode alike.

What is invalid is tried again within a budget: the whole episode where it failed, the verification alone where only
that did. An episode counts once, by its last try; what failed before is kept as reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from ratchet.contracts.attempt import CallStep
from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.environment import Deliverable, Environment, Task, Verdict
from ratchet.contracts.manifest import Reward
from ratchet.contracts.model import revalidated
from ratchet.contracts.score import Invalid
from ratchet.deadline import told, within
from ratchet.errors import TooManyInvalid
from ratchet.rewards.compose import Outcome, check_spec, judge_counts, judge_outcome, verifiers_alone
from ratchet.rewards.judges.grading import Grader
from ratchet.rollouts.rollout import Rollout

NOTHING = Deliverable(submitted=False, files={})
SHOWN = 5
"""Reasons that are shown, the most frequent ones first."""
Request = tuple[Task, int]
"""A task and the seed of the attempt."""


class Judged(NamedTuple):
    """One attempt, what it is worth, and the verifier's CPU seconds."""

    rollout: Rollout
    outcome: Outcome
    verifier_s: float
    failed: tuple[str, ...] = ()
    """Why the tries before this one were invalid, in order."""
    judge_calls: int = 0
    """Items that a judge was asked to grade: 1 or 0."""

    @property
    def invalid(self) -> str | None:
        """Why the attempt is invalid, or None."""
        return self.outcome.score.reason if isinstance(self.outcome.score, Invalid) else None


def judge(environment: Environment, rollout: Rollout, spec: Reward, grader: Grader | None = None) -> Judged:
    """Verify and score one rollout. An error of episode, verifier or judge makes it invalid, never 0.

    A judge counts through its grader alone. Without one the verifiers alone pay and accept: so it is where first logs
    are made and where validation chooses a checkpoint.

    Raises:
        RatchetError: the reward is not one that can be computed; see `check_spec`.
    """
    verdict: Verdict | Invalid
    if rollout.invalid is not None or rollout.deliverable is None:
        verdict = Invalid(reason=rollout.invalid or "no deliverable")
    else:
        try:
            verify = partial(environment.verify, rollout.task, rollout.deliverable)
            verdict = revalidated(Verdict, within(spec.verifier_timeout_s, verify))
        except Exception as error:  # the one capture point: a failing verifier is data, not a crash
            verdict = Invalid(reason=told("verifier", error))
    asked = None
    if isinstance(verdict, Verdict) and rollout.deliverable and rollout.deliverable.submitted and judge_counts(spec):
        asked = grader
    outcome = _outcome(environment, rollout, verdict, spec if grader else verifiers_alone(spec), asked)
    seconds = verdict.verifier_s if isinstance(verdict, Verdict) else 0.0
    return Judged(rollout, outcome, seconds, judge_calls=int(asked is not None))


def _outcome(
    environment: Environment, rollout: Rollout, verdict: Verdict | Invalid, spec: Reward, grader: Grader | None
) -> Outcome:
    """Score a verdict; what cannot be composed, or written down afterwards, is invalid too."""
    check_spec(spec)
    deliverable = rollout.deliverable or NOTHING
    try:
        outcome = judge_outcome(
            rollout.task,
            deliverable,
            verdict,
            calls=rollout.calls,
            malformed=rollout.malformed,
            spec=spec,
            steps=None if rollout.invalid is not None else calls_of(rollout),
            permissions=environment.spec,
            grade=grader.grade(rollout.task, deliverable) if grader else None,
        )
        canonical_json(outcome).encode()
    except Exception as error:  # evidence of a verifier may be anything
        return Outcome(score=Invalid(reason=told("reward", error)), reward=None)
    return outcome


def calls_of(rollout: Rollout) -> tuple[CallStep, ...]:
    """The calls of an episode with their answers, as the reward reads them."""
    return tuple(CallStep(call=exchange.call, result=exchange.result) for exchange in rollout.exchanges)


def judge_all(
    environment: Environment,
    rollouts: Iterable[Rollout],
    spec: Reward,
    pool: ThreadPoolExecutor,
    grader: Grader | None = None,
) -> list[Judged]:
    """Judge many rollouts on all slots of the sandbox, in order; the judge grades them in batches before."""
    rollouts = list(rollouts)
    if grader is not None and judge_counts(spec):
        grader.ahead((one.task, one.deliverable) for one in rollouts if one.deliverable and one.deliverable.submitted)
    return list(pool.map(lambda rollout: judge(environment, rollout, spec, grader), rollouts))


def attempt_all(
    environment: Environment,
    requests: Sequence[Request],
    spec: Reward,
    play: Callable[[Sequence[Request]], Sequence[Rollout]],
    pool: ThreadPoolExecutor,
    retries: int,
    grader: Grader | None = None,
) -> list[Judged]:
    """Play and judge attempts, and try again what is invalid.

    Args:
        environment: where they run.
        requests: tasks with seeds.
        spec: the manifest's reward.
        play: runs attempts, in order; under the same seed a policy draws the same again.
        pool: runs the verifications.
        retries: tries beyond the first that an invalid attempt has.
        grader: the judge, where it counts.

    Returns:
        One judged attempt per request, in order: the last try.
    """
    judged = judge_all(environment, play(requests), spec, pool, grader)
    for _ in range(retries):
        again = [index for index, one in enumerate(judged) if one.invalid is not None]
        if not again:
            break
        broken = [index for index in again if judged[index].rollout.invalid is not None]
        rollouts = {index: judged[index].rollout for index in again}
        rollouts.update(zip(broken, play([requests[index] for index in broken]) if broken else (), strict=True))
        for index, fresh in zip(again, judge_all(environment, rollouts.values(), spec, pool, grader), strict=True):
            judged[index] = fresh._replace(failed=(*judged[index].failed, judged[index].invalid or ""))
    return judged


class Faults(NamedTuple):
    """How many of some attempts are invalid, how many were mended by a retry, and why: reasons with their numbers."""

    attempts: int
    invalid: dict[str, int]
    mended: dict[str, int]

    def __add__(self, other: object) -> Faults:
        """Both together."""
        if not isinstance(other, Faults):
            return NotImplemented
        invalid, mended = Counter(self.invalid) + Counter(other.invalid), Counter(self.mended) + Counter(other.mended)
        return Faults(self.attempts + other.attempts, dict(invalid), dict(mended))

    @property
    def share(self) -> float:
        """Share of invalid attempts, 0 where there is no attempt."""
        return sum(self.invalid.values()) / self.attempts if self.attempts else 0.0

    def __str__(self) -> str:
        invalid, mended = sum(self.invalid.values()), sum(self.mended.values())
        told_invalid = f" ({reasons_told(self.invalid)})" if invalid else ""
        told_mended = f", {mended} mended by a retry ({reasons_told(self.mended)})" if mended else ""
        return f"{invalid} of {self.attempts} invalid{told_invalid}{told_mended}"


def faults(judged: Iterable[Judged]) -> Faults:
    """Count what failed. A mended attempt counts once, by the first reason that it failed for."""
    judged = list(judged)
    invalid = Counter(one.invalid for one in judged if one.invalid is not None)
    mended = Counter(one.failed[0] for one in judged if one.failed and one.invalid is None)
    return Faults(len(judged), dict(invalid), dict(mended))


def reasons_told(reasons: dict[str, int]) -> str:
    """The most frequent reasons with their numbers, in one line."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    shown = "; ".join(f"{count} x {reason}" for reason, count in ordered[:SHOWN])
    return shown if len(ordered) <= SHOWN else f"{shown}; and {len(ordered) - SHOWN} other reasons"


def refuse_excess(what: str, judged: Sequence[Judged] | Faults, max_share: float, *, of: int | None = None) -> None:
    """Raise TooManyInvalid, with the reasons, where too many of the attempts are invalid.

    Args:
        what: names them.
        judged: the attempts so far, or their counts.
        max_share: share that may be invalid.
        of: attempts in all, where more are to come.
    """
    found = judged if isinstance(judged, Faults) else faults(judged)
    whole, invalid = of or found.attempts, sum(found.invalid.values())
    if whole and invalid / whole > max_share:
        raise TooManyInvalid(
            what,
            seen=f"{invalid} of {whole} invalid",
            rule=f"at most a share of {max_share:g} may be; reasons: {reasons_told(found.invalid)}",
            remedy="repair the infrastructure and run again; finished work is kept",
        )
