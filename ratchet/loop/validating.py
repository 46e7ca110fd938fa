"""Validation: how a model does on the validation tasks, and what it lost and gained against the one it came from.

Validation chooses the checkpoint. The regression report compares that checkpoint with the policy that training started
from, task by task, on the same tasks and draws: an acceptance that rose can hide tasks that were solved before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ratchet.contracts.policy import Harness
from ratchet.loop.context import Run
from ratchet.methods.base import Validation
from ratchet.policies.rendering import Rendering
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.judged import Judged, Request, attempt_all, refuse_excess
from ratchet.rollouts.rollout import Rollout

BATCH = 160


def validation(
    run: Run, rendering: Rendering, pool: ThreadPoolExecutor, harness: Harness
) -> Callable[[Any], Validation]:
    """Return what plays the validation tasks of a run with a model, once each."""
    tasks = run.validation_tasks()

    def validate(model: Any) -> Validation:
        def play(some: Sequence[Request]) -> list[Rollout]:
            return run_batch(model, rendering, run.environment, harness, some, salt="validation", pool=pool)

        judged: list[Judged] = []
        for start in range(0, len(tasks), BATCH):
            requests = [(task, 0) for task in tasks[start : start + BATCH]]
            judged += attempt_all(
                run.environment, requests, run.manifest.reward, play, pool, run.manifest.invalid_retries
            )
        found = {one.rollout.task.task_id: one.outcome.accepted for one in judged if one.invalid is None}
        # Without a valid attempt there is no acceptance to choose by, whatever share may be invalid.
        refuse_excess("validation", judged, run.manifest.max_invalid_share if found else 0.0)
        return Validation(sum(found.values()) / len(found), found)

    return validate


def regression(start: Validation, kept: Mapping[str, bool]) -> dict[str, Any]:
    """Compare the kept checkpoint with the policy that training started from.

    Args:
        start: that policy on the validation tasks.
        kept: whether the checkpoint's attempt was accepted, by task id.

    Returns:
        Plain JSON: `start`, the acceptance before; `compared`, the number of tasks with a valid attempt of both; the
        ids of those that were `lost` (accepted before, not now) and `gained`; and the number `held` (accepted twice).
    """
    both = sorted(start.outcomes.keys() & kept.keys())
    return {
        "start": start.acceptance,
        "compared": len(both),
        "lost": [task for task in both if start.outcomes[task] and not kept[task]],
        "gained": [task for task in both if kept[task] and not start.outcomes[task]],
        "held": sum(start.outcomes[task] and kept[task] for task in both),
    }
