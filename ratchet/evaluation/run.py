"""Held-out runs: every arm on the same tasks and seeds, chunk by chunk in turn, resumed where it stopped.

The arms take turns so that a machine that slows down slows all of them. Rows are stored as soon as a chunk is done;
what is missing or invalid (within the retries) is what the next call runs. Where more stays invalid than a stage may
have, the call stops; after that, what is invalid has its retries anew, since somebody has repaired what broke. Nothing
runs before its opening of the held-out set is logged, and processes of one home that evaluate the same take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from ratchet.contracts.environment import Environment, Task
from ratchet.contracts.manifest import EvaluationSection, Reward
from ratchet.contracts.policy import Policy, refuse_widened
from ratchet.contracts.score import Invalid
from ratchet.evaluation.openings import require_opening
from ratchet.evaluation.references import matched_calls, reference_calls
from ratchet.evaluation.rows import EvaluationPlan, EvaluationRow, Gap, PlannedTask, RowStore
from ratchet.policies.rendering import Rendering
from ratchet.progress import task as progress
from ratchet.rewards.judges.grading import Grader
from ratchet.rollouts.engine import PolicyEngine
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.judged import Faults, Judged, calls_of, judge_all, refuse_excess
from ratchet.store import Store

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK = 200
THREADS = 4


class Arm(NamedTuple):
    """A policy under evaluation, loaded."""

    policy: Policy
    model: PreTrainedModel | PolicyEngine
    rendering: Rendering


def plan(
    lock_digest: str,
    environment_digest: str,
    reward_digest: str,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    engine: str = "transformers",
) -> EvaluationPlan:
    """Plan one evaluation: which tasks and seeds every arm runs, under which environment and reward.

    Raises:
        EvaluationError: a task carries reference calls that are no calls.
    """
    for task in tasks:
        reference_calls(task)
    planned = tuple(
        PlannedTask(task_id=task.task_id, task_digest=task.digest, repo=task.repo, segment=task.segment)
        for task in tasks
    )
    return EvaluationPlan(
        lock_digest=lock_digest,
        environment_digest=environment_digest,
        reward_digest=reward_digest,
        tasks=planned,
        seeds=tuple(seeds),
        engine=engine,
    )


def run(
    arms: Sequence[Arm],
    what: EvaluationPlan,
    tasks: Sequence[Task],
    environment: Environment,
    reward: Reward,
    section: EvaluationSection,
    store: Store,
    *,
    max_invalid_share: float,
    grader: Grader | None = None,
) -> list[RowStore]:
    """Fill every gap of every arm.

    Args:
        arms: loaded policies; the first is the incumbent.
        what: the plan.
        tasks: the held-out tasks, as the plan pins them.
        environment: where they run.
        reward: how they are scored.
        section: seeds, retries.
        store: where the rows are kept.
        max_invalid_share: share of an arm's runs that may stay invalid.
        grader: the judge, where it counts; the same for every arm.

    Returns:
        The row stores, in the order of the arms; `complete()` of each holds.

    Raises:
        PermissionsError: an arm's harness asks for more than the environment or the incumbent has.
        EvaluationError: an arm's opening of the held-out set was not logged, or rows are missing after all retries (an
            invalid row is a row).
        TooManyInvalid: more of an arm than may be is invalid after all retries; its rows are kept.
    """
    for arm in arms:
        incumbent = None if arm is arms[0] else arms[0].policy.harness
        refuse_widened(arm.policy.name, arm.policy.harness, environment.spec, incumbent)
        require_opening(store, what, arm.policy.digest, arm.policy.harness.digest)
    stores = [RowStore(store, what, arm.policy.digest, arm.policy.harness.digest) for arm in arms]
    with store.locked(f"evaluation/{what.digest}.running"):
        _fill(arms, stores, tasks, environment, reward, section, max_invalid_share, grader)
    for arm, rows in zip(arms, stores, strict=True):
        refuse_excess(f"held-out runs of {arm.policy.name}", failed(rows.complete()), max_invalid_share)
    return stores


def _fill(
    arms: Sequence[Arm],
    stores: Sequence[RowStore],
    tasks: Sequence[Task],
    environment: Environment,
    reward: Reward,
    section: EvaluationSection,
    max_invalid_share: float,
    grader: Grader | None,
) -> None:
    for rows in stores:
        rows.settle()
    by_id = {task.task_id: task for task in tasks}
    allowed = [attempts_allowed(rows, section.retries, max_invalid_share) for rows in stores]
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(section.retries + 1):
            gaps = [rows.missing(attempts) for rows, attempts in zip(stores, allowed, strict=True)]
            total = sum(map(len, gaps))
            if not total:
                break
            with progress(f"held-out runs of {len(arms)} policies", total) as tick:
                for start in range(0, max(map(len, gaps)), CHUNK):
                    for arm, rows, missing in zip(arms, stores, gaps, strict=True):
                        chunk = missing[start : start + CHUNK]
                        if chunk:
                            rows.append(_chunk(arm, rows, chunk, by_id, environment, reward, pool, grader))
                            tick(len(chunk), arm.policy.name)


def attempts_allowed(rows: RowStore, retries: int, max_invalid_share: float) -> int:
    """Return how many attempts a run may take in all: one and the retries, and what was spent before a stop.

    An arm was stopped where nothing is left to try and still too much is invalid.
    """
    if rows.missing(retries + 1):
        return retries + 1
    held = rows.complete()
    spent = [row.attempts for row in held if row.status == "invalid"]
    return retries + 1 + (max(spent) if failed(held).share > max_invalid_share else 0)


def failed(rows: Sequence[EvaluationRow]) -> Faults:
    """Count the invalid rows of an arm by reason, and those that a retry has mended."""
    invalid = Counter(row.invalid_reason for row in rows if row.invalid_reason is not None)
    mended = sum(row.attempts > 1 for row in rows if row.status != "invalid")
    return Faults(len(rows), dict(invalid), {"an earlier attempt was invalid": mended} if mended else {})


def _chunk(
    arm: Arm,
    rows: RowStore,
    gaps: Sequence[Gap],
    tasks: dict[str, Task],
    environment: Environment,
    reward: Reward,
    pool: ThreadPoolExecutor,
    grader: Grader | None,
) -> list[EvaluationRow]:
    requests = [(tasks[gap.task_id], gap.seed) for gap in gaps]
    batch = run_batch(arm.model, arm.rendering, environment, arm.policy.harness, requests, salt="heldout", pool=pool)
    judged = judge_all(environment, batch, reward, pool, grader)
    return [row_of(arm.policy, rows.evaluation, gap, one) for gap, one in zip(gaps, judged, strict=True)]


def row_of(policy: Policy, evaluation: str, gap: Gap, judged: Judged) -> EvaluationRow:
    """The row of one judged episode."""
    rollout, outcome = judged.rollout, judged.outcome
    task, invalid = rollout.task, isinstance(outcome.score, Invalid)
    delivered = rollout.deliverable
    return EvaluationRow(
        evaluation=evaluation,
        task_id=task.task_id,
        task_digest=task.digest,
        repo=task.repo,
        segment=task.segment,
        seed=gap.seed,
        policy=policy.name,
        policy_digest=policy.digest,
        harness_digest=policy.harness.digest,
        status="invalid" if invalid else "accepted" if outcome.accepted else "rejected",
        invalid_reason=outcome.score.reason if isinstance(outcome.score, Invalid) else None,
        submitted=bool(delivered and delivered.submitted),
        visible_passed=delivered.visible_passed if delivered else None,
        reward=outcome.reward,
        calls=rollout.calls,
        ok_calls=rollout.ok_calls,
        matched_calls=matched_calls(task, calls_of(rollout)),
        violations=(*outcome.violations, *rollout.violations),
        exploit=outcome.exploit,
        exploits=outcome.exploits,
        parts={name: part["value"] for name, part in outcome.evidence.get("parts", {}).items()},
        tokens_in=rollout.tokens_in,
        tokens_out=rollout.tokens_out,
        sandbox_s=rollout.sandbox_s,
        verifier_s=judged.verifier_s,
        judge_calls=judged.judge_calls,
        latency_s=rollout.latency_s,
        attempts=gap.attempt,
    )
