"""Withdrawing tasks of an experiment: its lock is superseded, and what was measured before stays apart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from ratchet.loop.context import reopen_run
from ratchet.splits import SplitLock, save_successor, supersede


def withdraw_tasks(
    home: Path, run_id: str, task_ids: Sequence[str], *, by: str, reason: str, at: datetime
) -> SplitLock:
    """Supersede the lock of an experiment by a version without these tasks.

    Evaluations, certificates and decisions under the version before keep its digest: they are neither compared with
    new ones nor accepted in their place.

    Raises:
        SplitError: a task is not in the lock in force, or nobody or no reason is named.
    """
    with reopen_run(home, run_id) as run:
        new = supersede(run.lock, run.tasks(), task_ids, by=by, reason=reason, at=at)
        save_successor(run.store, new, run.name("splits"))
        return new
