"""Live tasks: one is assigned to an arm, played to its end by that arm's version, judged, and its outcome kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple

from ratchet.contracts.environment import Environment, Prices, Task
from ratchet.contracts.manifest import Reward
from ratchet.evaluation.economics import run_cost
from ratchet.release.live import Arm, LiveOutcome, outcome_key
from ratchet.rollouts.judged import judge
from ratchet.serving.assign import arm_of
from ratchet.serving.desk import CANARY, PRODUCTION, Desk
from ratchet.serving.outcomes import Spool


class Work(NamedTuple):
    """What a line's live tasks need besides the versions: all of it from the line's manifest."""

    environment: Environment
    reward: Reward
    prices: Prices


class Spent(NamedTuple):
    """What a live task used. No judge is asked: the verifiers alone say whether work is accepted."""

    tokens_in: int
    tokens_out: int
    sandbox_s: float
    verifier_s: float
    judge_calls: int = 0


class NothingServes(Exception):
    """No version stands in production, and there is no baseline."""


class LiveTasks:
    """Answers live tasks of one line."""

    def __init__(self, desk: Desk, spool: Spool, work: Work, pool: ThreadPoolExecutor) -> None:
        """Use the versions of `desk` and keep outcomes in `spool`; `pool` runs tool calls."""
        self.desk, self.spool, self.work, self.pool = desk, spool, work, pool

    def answer(self, live_id: str, task: Task, seed: int) -> tuple[LiveOutcome, bool]:
        """Play one live task; the same one again under the same version gets the outcome that it had.

        Returns:
            The outcome as it is kept, and whether it was there already.

        Raises:
            NothingServes: there is nothing to answer with.
        """
        table = self.desk.table
        canary = table.slots.get(CANARY)
        arm: Arm = arm_of(canary.identity, live_id, table.share) if canary else "production"
        served = table.slots.get(CANARY if arm == "canary" else PRODUCTION)
        if served is None:
            raise NothingServes
        beside = canary.identity if canary else None
        known = self.spool.find(outcome_key(live_id, served.identity, beside))
        if known is not None:
            return known, True
        work = self.work
        judged = judge(work.environment, served.play(work.environment, task, seed, self.pool), work.reward)
        rollout = judged.rollout
        spent = Spent(rollout.tokens_in, rollout.tokens_out, rollout.sandbox_s, judged.verifier_s)
        outcome = LiveOutcome(
            live_id=live_id,
            segment=task.segment,
            arm=arm,
            version=served.identity,
            policy_digest=served.policy.digest,
            canary=beside,
            score=judged.outcome.score,
            accepted=None if judged.invalid else judged.outcome.accepted,
            latency_s=rollout.latency_s,
            cost=run_cost(spent, work.prices),
            violations=(*rollout.violations, *judged.outcome.violations),
            at=datetime.now(UTC),
        )
        if self.spool.add(outcome):
            return outcome, False
        # The same task came twice at once: the first to end counts.
        return self.spool.find(outcome.key) or outcome, True
