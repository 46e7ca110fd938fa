"""A rollout with its verdict: the one place where training, evaluation and log making score an episode alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ratchet.contracts.attempt import CallStep
from ratchet.contracts.environment import Deliverable, Environment, Verdict
from ratchet.contracts.manifest import Reward
from ratchet.contracts.score import Invalid
from ratchet.errors import TooManyInvalid
from ratchet.rewards.compose import Outcome, judge_outcome, judge_pays, verifiers_alone
from ratchet.rewards.judges.grading import Grader
from ratchet.rollouts.episodes import Rollout

NOTHING = Deliverable(submitted=False, files={})


class Judged(NamedTuple):
    """One attempt, what it is worth, and the verifier's CPU seconds."""

    rollout: Rollout
    outcome: Outcome
    verifier_s: float


def judge(environment: Environment, rollout: Rollout, spec: Reward, grader: Grader | None = None) -> Judged:
    """Verify and score one rollout. An error of episode, verifier or judge makes it invalid, never 0.

    A judge pays through its grader alone. Without one the verifiers alone pay: so it is where nothing is learned from
    the reward, and acceptance is the same either way.
    """
    verdict: Verdict | Invalid
    if rollout.invalid is not None or rollout.deliverable is None:
        verdict = Invalid(reason=rollout.invalid or "no deliverable")
    else:
        try:
            verdict = environment.verify(rollout.task, rollout.deliverable)
        except Exception as error:  # the one capture point: a failing verifier is data, not a crash
            verdict = Invalid(reason=f"verifier: {type(error).__name__}: {error}")
    spec = spec if grader else verifiers_alone(spec)
    handed_in = rollout.deliverable if rollout.deliverable and rollout.deliverable.submitted else None
    grade = grader.grade(rollout.task, handed_in) if grader and judge_pays(spec) and handed_in else None
    outcome = judge_outcome(
        rollout.task,
        rollout.deliverable or NOTHING,
        verdict,
        calls=rollout.calls,
        malformed=rollout.malformed,
        spec=spec,
        steps=None if rollout.invalid is not None else calls_of(rollout),
        permissions=environment.spec,
        grade=grade,
    )
    return Judged(rollout, outcome, verdict.verifier_s if isinstance(verdict, Verdict) else 0.0)


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
    if grader is not None and judge_pays(spec):
        grader.ahead((one.task, one.deliverable) for one in rollouts if one.deliverable and one.deliverable.submitted)
    return list(pool.map(lambda rollout: judge(environment, rollout, spec, grader), rollouts))


def refuse_excess(what: str, judged: Sequence[Judged], max_share: float) -> None:
    """Raise TooManyInvalid, with the reasons, where more than `max_share` of the attempts are invalid."""
    reasons = [one.outcome.score.reason for one in judged if isinstance(one.outcome.score, Invalid)]
    if judged and len(reasons) / len(judged) > max_share:
        raise TooManyInvalid(
            what,
            seen=f"{len(reasons)} of {len(judged)} invalid",
            rule=f"at most a share of {max_share:g} may be; first reasons: {'; '.join(sorted(set(reasons))[:3])}",
            remedy="repair the infrastructure and run again; finished work is kept",
        )
