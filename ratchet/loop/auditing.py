"""The audit of the reward: before anything trains on it, and again after training, on the same probes.

Where a judge counts, the audit is of the reward with this judge: each generation of it has audits of its own, training
asks for one of the judge that pays it, and none uses the memory, which would answer for a judge that has changed behind
its name.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ratchet.errors import TrainingError
from ratchet.loop import judge as judges
from ratchet.loop.admission import admitted_verifiers
from ratchet.loop.context import Run, Stage, stage
from ratchet.loop.judge_drift import grader, require_calibrated
from ratchet.progress import task as progress
from ratchet.rewards.audit import RewardAudit, audit, audit_changes, reopen_audit
from ratchet.rewards.compose import judge_counts, spec_digest
from ratchet.rewards.judges.base import Memory
from ratchet.rewards.judges.grading import Grader

AUDITED_TASKS = 24
FIRST, AGAIN = "reward_audit.json", "reward_audit_after.json"


def reward_audit(run: Run) -> Stage:
    """Admit the verifiers, then try the honeypots on the reward, on a sample of training tasks, once.

    Raises:
        RatchetError: a verifier disagrees with itself or changes what it reads, or a judge counts uncalibrated.
    """
    admitted = admitted_verifiers(run)
    number = _newest(run)
    _, reused = run.once(_place(run, FIRST, number), lambda: _audited(run, number).to_bytes())
    found = open_audit(run)
    rows = [probe.model_dump(mode="json") for probe in found.probes]
    summary = "no honeypot earns anything" if found.passed else f"failed: {', '.join(found.failures)}"
    summary += "; the judge graded every probe, with orders to it too" if found.judge_digest else ""
    return stage(
        "reward_audit",
        reused,
        summary,
        found.digest,
        rows,
        passed=str(found.passed),
        spec=spec_digest(run.manifest.reward),
        admitted=", ".join([*admitted.verifiers, *admitted.step_verifiers]),
    )


def open_audit(run: Run) -> RewardAudit:
    """The audit of the reward, as stored; with the newest generation of the judge that was tried, where one counts."""
    name = run.name(audit_place(run, FIRST))
    return reopen_audit(run.store.read(name), name)


def audit_for_training(run: Run) -> RewardAudit:
    """The audit of the reward with the judge that pays now.

    Raises:
        TrainingError: the judge is not calibrated or is frozen, or the audit was of another judge.
    """
    held = require_calibrated(run)
    found = open_audit(run)
    if held is not None and found.judge_digest != held.judge_digest:
        raise TrainingError(
            "audit of the reward",
            seen=f"judge {(found.judge_digest or 'none')[:12]}",
            rule=f"the judge that pays is {held.judge_digest[:12]}, and it must have been tried",
            remedy="run the asset reward_audit again",
        )
    return found


def audit_again(run: Run) -> tuple[str, ...]:
    """Try the honeypots again on the tasks of the first audit, once, and say what comes to something else.

    Raises:
        RatchetError: the reward or the environment is not that of the audit before training.
    """
    tasks = {task for outcomes in open_audit(run).outcomes.values() for task in outcomes}
    run.once(audit_place(run, AGAIN), lambda: _audited(run, _audited_generation(run), tasks).to_bytes())
    return changes(run)


def open_audit_again(run: Run) -> RewardAudit:
    """The audit after training, as stored."""
    name = run.name(audit_place(run, AGAIN))
    return reopen_audit(run.store.read(name), name)


def changes(run: Run) -> tuple[str, ...]:
    """What differs between the stored audits before and after training."""
    return audit_changes(open_audit(run), open_audit_again(run))


def audit_place(run: Run, name: str) -> str:
    """Name within the run of the audit `FIRST` or `AGAIN`; with a later generation of the judge, beside that."""
    return _place(run, name, _audited_generation(run))


def _newest(run: Run) -> int:
    return judges.generation(run) if judge_counts(run.manifest.reward) else 1


def _audited_generation(run: Run) -> int:
    """The newest generation of the judge that was tried; a recalibration is not, before the next audit."""
    tried = (number for number in range(_newest(run), 1, -1) if run.store.exists(run.name(_place(run, FIRST, number))))
    return next(tried, 1)


def _place(run: Run, name: str, generation: int) -> str:
    return name if generation == 1 else judges.place(run, name, of=generation)


def _audited(run: Run, generation: int, again: Collection[str] = ()) -> RewardAudit:
    """Audit the reward on a sample of training tasks, or on those of the tasks `again` that there still are."""
    tasks = run.training_tasks()
    sample = [task for task in tasks if task.task_id in again] or random.Random(f"{run.manifest.seed}/audit").sample(
        tasks, min(AUDITED_TASKS, len(tasks))
    )
    with progress(f"reward audit on {len(sample)} tasks"), _fresh_grader(run, generation) as judge:
        return audit(run.environment, sample, run.manifest.reward, judge)


@contextmanager
def _fresh_grader(run: Run, generation: int) -> Iterator[Grader | None]:
    """A generation of the judge as it is now, with a memory of this audit alone; None where none counts."""
    if not judge_counts(run.manifest.reward):
        yield None
        return
    with tempfile.TemporaryDirectory() as folder, closing(Memory(Path(folder) / "judgements.db")) as memory:
        yield grader(run, memory, of=generation)
