"""The audit of the reward again after training, on the same probes."""

from __future__ import annotations

from ratchet.loop.context import Run
from ratchet.loop.data import audited, open_audit
from ratchet.rewards.audit import RewardAudit, audit_changes, reopen_audit

AGAIN = "reward_audit_after.json"


def audit_again(run: Run) -> tuple[str, ...]:
    """Try the honeypots again on the tasks of the first audit, once, and say what comes to something else.

    Raises:
        RatchetError: the reward or the environment is not that of the audit before training.
    """
    tasks = {task for outcomes in open_audit(run).outcomes.values() for task in outcomes}
    run.once(AGAIN, lambda: audited(run, tasks).to_bytes())
    return changes(run)


def open_audit_again(run: Run) -> RewardAudit:
    """The audit after training, as stored."""
    return reopen_audit(run.store.read(run.name(AGAIN)), run.name(AGAIN))


def changes(run: Run) -> tuple[str, ...]:
    """What differs between the stored audits before and after training."""
    return audit_changes(open_audit(run), open_audit_again(run))
