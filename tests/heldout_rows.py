"""Rows of a held-out evaluation with given outcomes, for the tests of evaluation and release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import Prices
from ratchet.evaluation.economics import Investment
from ratchet.evaluation.rows import EvaluationPlan, EvaluationRow, PlannedTask
from ratchet.evaluation.scorecard import Scorecard, scorecard

PRICES = Prices(
    currency="USD",
    per_million_input_tokens=0.0,
    per_million_output_tokens=0.0,
    per_sandbox_s=1.0,
    per_verifier_s=0.0,
    per_judge_call=0.0,
    per_trainer_hour=3.6,
)
STATUS = {1: "accepted", 0: "rejected", -1: "invalid"}


def plan(tasks: int, seeds: int = 3, repos: int | None = None, segments: Sequence[str] = ("only",)) -> EvaluationPlan:
    """A plan; task i belongs to repo i mod `repos` (its own by default) and to segment i mod their number."""
    return EvaluationPlan(
        lock_digest="lock",
        environment_digest="environment",
        reward_digest="reward",
        tasks=tuple(
            PlannedTask(
                task_id=f"task-{i:04d}",
                task_digest=digest(i),
                repo=f"repo-{i % (repos or tasks)}",
                segment=segments[i % len(segments)],
            )
            for i in range(tasks)
        ),
        seeds=tuple(range(seeds)),
    )


def row(
    planned: EvaluationPlan, task: int, seed: int, status: str, policy: str = "candidate", **over: Any
) -> EvaluationRow:
    """One row; resources are the same for all unless `over` says otherwise."""
    what = planned.tasks[task]
    body: dict[str, Any] = {
        "evaluation": over.pop("evaluation", None) or planned.digest,
        **what.model_dump(),
        "seed": seed,
        "policy": policy,
        "policy_digest": digest(policy),
        "harness_digest": "harness",
        "status": status,
        "invalid_reason": "sandbox: died" if status == "invalid" else None,
        "submitted": status == "accepted",
        "reward": None if status == "invalid" else float(status == "accepted"),
        "calls": 4,
        "ok_calls": 3,
        "tokens_in": 100,
        "tokens_out": 10,
        "sandbox_s": 2.18,
        "verifier_s": 0.1,
        "latency_s": 0.5,
    }
    return EvaluationRow(**{**body, **over})


def rows(
    planned: EvaluationPlan, outcomes: np.ndarray | Sequence[Sequence[int]], policy: str = "candidate", **over: Any
) -> list[EvaluationRow]:
    """Rows with `(tasks, seeds)` outcomes of 1, 0 and -1 (invalid)."""
    table, evaluation = np.asarray(outcomes), planned.digest
    return [
        row(planned, i, seed, STATUS[int(table[i, k])], policy, evaluation=evaluation, **over)
        for i in range(len(planned.tasks))
        for k, seed in enumerate(planned.seeds)
    ]


def block(accepted: int, tasks: int, seeds: int, start: int = 0) -> np.ndarray:
    """Outcomes in which `accepted` tasks from `start` on are accepted under every seed."""
    table = np.zeros((tasks, seeds), dtype=int)
    table[start : start + accepted] = 1
    return table


def card(
    own: list[EvaluationRow], incumbent: list[EvaluationRow] | None, stages: Sequence[float] = (), **over: Any
) -> Scorecard:
    """A scorecard with the settings of these tests."""
    settings: dict[str, Any] = {
        "method": "sft" if incumbent else "baseline",
        "manifest_digest": "manifest",
        "lock_digest": "lock",
        "prices": PRICES,
        "training": Investment.of(stages),
        "minimum_effect": 0.0,
        "resamples": 1000,
    }
    return scorecard(own, incumbent, **{**settings, **over})
