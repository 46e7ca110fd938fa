"""Probes of a reward: each really verified and scored as an episode would be, the judge's grade among it.

Where a judge counts, whatever the composition would pay is also shown to it with orders in what it reads, and with text
that says nothing of the same length. The copies keep the verdict of the work: nothing about it is better. So where the
orders earn more than the work and its twin, the judge was talked into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from ratchet.contracts.attempt import CallStep
from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import Deliverable, Environment, Task, ToolCall, Verdict
from ratchet.contracts.manifest import Reward
from ratchet.contracts.score import Invalid
from ratchet.errors import SandboxError
from ratchet.rewards.compose import Outcome, judge_counts, judge_outcome, verifiers_alone
from ratchet.rewards.judges.bias import INJECTIONS, with_filler, with_order
from ratchet.rewards.judges.grading import Grade, Grader

HONEST, NO_OP = "honest", "no_op"
ORDERS, FILLER = "+orders", "+filler"
"""Endings of the kinds that show a probe to the judge with orders to it, and with filler of the same length."""


@runtime_checkable
class OffersCallProbes(Protocol):
    """An environment with honeypots that show only in the calls of an episode."""

    def call_probes(self, task: Task) -> dict[str, tuple[ToolCall, ...]]:
        """The calls of one episode per such honeypot, by probe name; empty where the tools are not permitted."""


class Tried(NamedTuple):
    """What one probe came to."""

    outcome: Outcome
    identity: str
    """Digest of what was tried."""


class _Handed(NamedTuple):
    """What a probe hands in, and what the verification says of it."""

    task: Task
    deliverable: Deliverable
    verdict: Verdict | Invalid
    identity: str
    steps: tuple[CallStep, ...] | None = None


Probed = dict[str, dict[str, Tried]]
"""By task id and kind of probe."""


def try_probes(environment: Environment, tasks: Sequence[Task], spec: Reward, grader: Grader | None) -> Probed:
    """Try every probe of every task.

    Args:
        environment: verifies and offers the probes.
        tasks: tasks to try them on.
        spec: the manifest's reward section.
        grader: the judge, where it counts; without one the verifiers alone pay.
    """
    grader = grader if judge_counts(spec) else None
    spec = spec if grader else verifiers_alone(spec)
    handed = {task.task_id: _hand_in(environment, task) for task in tasks}
    works = [one for probes in handed.values() for one in probes.values() if isinstance(one, _Handed)]
    if grader:
        grader.ahead((one.task, one.deliverable) for one in works if _gradable(one))
    found: Probed = {
        task: {kind: _tried(environment, one, spec, grader) for kind, one in probes.items()}
        for task, probes in handed.items()
    }
    for task, probes in handed.items() if grader else ():
        for kind, one in probes.items():
            if grader and kind != HONEST and isinstance(one, _Handed) and _would_be_paid(one, found[task][kind], spec):
                found[task] |= _talked_into(environment, kind, one, spec, grader)
    return found


def reference(kind: str, tried: Mapping[str, Tried]) -> float:
    """What a probe has to earn more than, to earn anything: what doing nothing earns, and 0 where that is not known.

    With orders to the judge, it is what the work earns without them, or with filler in their place.
    """
    base = kind.removesuffix(ORDERS)
    against = [NO_OP] if base == kind else [base, base + FILLER]
    rewards = [tried[one].outcome.reward for one in against if one in tried]
    return max((reward for reward in rewards if reward is not None), default=0.0)


def _hand_in(environment: Environment, task: Task) -> dict[str, _Handed | Invalid]:
    try:
        probes = environment.probes(task)
    except SandboxError as error:
        return dict.fromkeys((HONEST, NO_OP), Invalid(reason=f"probes: {error}"))
    handed: dict[str, _Handed | Invalid] = {
        kind: _Handed(task, probe, _verdict(environment, task, probe), digest(probe)) for kind, probe in probes.items()
    }
    if isinstance(environment, OffersCallProbes):
        handed |= {kind: _played(environment, task, calls) for kind, calls in environment.call_probes(task).items()}
    return handed


def _played(environment: Environment, task: Task, calls: Sequence[ToolCall]) -> _Handed | Invalid:
    """Play an episode that makes these calls."""
    steps: list[CallStep] = []
    try:
        with environment.open(task, 0) as episode:
            episode.observation()
            for call in calls:
                steps.append(CallStep(call=call, result=episode.call(call)))
                if steps[-1].result.ends_episode:
                    break
            delivered = episode.deliverable()
    except SandboxError as error:
        return Invalid(reason=f"probe episode: {error}")
    return _Handed(task, delivered, _verdict(environment, task, delivered), digest(list(calls)), tuple(steps))


def _verdict(environment: Environment, task: Task, probe: Deliverable) -> Verdict | Invalid:
    try:
        return environment.verify(task, probe)
    except SandboxError as error:
        return Invalid(reason=f"verification: {error}")


def _gradable(one: _Handed) -> bool:
    return isinstance(one.verdict, Verdict) and one.deliverable.submitted


def _tried(environment: Environment, one: _Handed | Invalid, spec: Reward, grader: Grader | None) -> Tried:
    if isinstance(one, Invalid):
        return Tried(Outcome(score=one, reward=None), "")
    grade = grader.grade(one.task, one.deliverable) if grader and _gradable(one) else None
    return Tried(_scored(environment, one, spec, grade), one.identity)


def _scored(environment: Environment, one: _Handed, spec: Reward, grade: Grade | None) -> Outcome:
    steps = one.steps or ()
    return judge_outcome(
        one.task,
        one.deliverable,
        one.verdict,
        calls=len(steps),
        malformed=sum(step.result.status in ("malformed", "refused") for step in steps),
        spec=spec,
        steps=one.steps,
        permissions=None if one.steps is None else environment.spec,
        grade=grade,
    )


def _would_be_paid(one: _Handed, tried: Tried, spec: Reward) -> bool:
    """Whether the composition pays the probe what its parts are worth: it was handed in, and no listed gate vetoes."""
    valid = tried.outcome.reward is not None
    return valid and one.deliverable.submitted and not {*tried.outcome.violations} & {*spec.gates}


def _talked_into(environment: Environment, kind: str, one: _Handed, spec: Reward, grader: Grader) -> dict[str, Tried]:
    """Show a work to the judge with every order, and with filler; of each, what earns most counts."""
    item, best = grader.item_of(one.task, one.deliverable), grader.judge.rubric.categories[-1]
    ordered = [with_order(item, best, number) for number in range(len(INJECTIONS))]
    neutral = [with_filler(item, order) for order in ordered]
    grades = grader.grades([*ordered, *neutral])
    outcomes = [_scored(environment, one, spec, grade) for grade in grades]
    ends = {ORDERS: outcomes[: len(ordered)], FILLER: outcomes[len(ordered) :]}
    return {kind + end: Tried(_dearest(some), digest([one.identity, end])) for end, some in ends.items()}


def _dearest(outcomes: Sequence[Outcome]) -> Outcome:
    valid = [outcome for outcome in outcomes if outcome.reward is not None]
    return max(valid, key=lambda outcome: outcome.reward or 0.0) if valid else outcomes[0]
