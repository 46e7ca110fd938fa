"""A search over harnesses, in the process that is kept from the held-out tasks: the same cases for every harness.

The cases are validation tasks, drawn by the experiment's seed and spread over the segments. The weights stay those of
the policy that the search starts from.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ratchet.contracts.environment import Task, searchable
from ratchet.contracts.manifest import MethodSection
from ratchet.contracts.policy import Harness
from ratchet.errors import ManifestError
from ratchet.evaluation.economics import run_cost
from ratchet.loop.context import Run
from ratchet.methods import harness_search
from ratchet.methods.base import Guard, Spend, Validate
from ratchet.methods.harness_search import Attempt
from ratchet.policies.rendering import Rendering
from ratchet.progress import say
from ratchet.rollouts.episodes import run_batch
from ratchet.rollouts.judged import Judged, Request, attempt_all, refuse_excess
from ratchet.rollouts.rollout import Rollout

TOLD = 2000
"""Characters of an episode that a reflection model is shown at most."""


def search(
    run: Run,
    section: MethodSection,
    start: Harness,
    model: Any,
    rendering: Rendering,
    pool: ThreadPoolExecutor,
    *,
    settings: harness_search.Settings,
    output: Path,
    guard: Guard,
    validation: Callable[[Harness], Validate],
    spend: Spend | None = None,
) -> dict[str, Any]:
    """Search for one candidate; `train` of `ratchet.loop.trainer` has opened the doors.

    Returns:
        Plain JSON about the best harness, with its acceptance on all validation tasks.

    Raises:
        ManifestError: an adapter is asked for, which a search has none of.
    """
    if section.adapter is not None:
        raise ManifestError(
            f"methods.{section.name}.adapter", rule="a harness search trains no weights", remedy="leave it out"
        )
    chosen = cases(run, settings.cases, section.name)
    by_id = {task.task_id: task for task in chosen}

    def play(harness: Harness, requests: Sequence[tuple[str, int]]) -> list[Attempt]:
        def act(some: Sequence[Request]) -> list[Rollout]:
            return run_batch(model, rendering, run.environment, harness, some, salt=f"search/{section.name}", pool=pool)

        wanted = [(by_id[case], seed) for case, seed in requests]
        judged = attempt_all(run.environment, wanted, run.manifest.reward, act, pool, run.manifest.invalid_retries)
        refuse_excess(f"{section.name}: attempts at the cases", judged, run.manifest.max_invalid_share)
        return [attempt(run, one) for one in judged]

    found = harness_search.fit(
        start,
        run.environment.spec,
        searchable(run.environment),
        [task.task_id for task in chosen],
        play,
        settings,
        seed=run.manifest.seed,
        output=output,
        guard=guard,
        max_wall_s=section.max_wall_s,
        spend=spend,
        name=section.name,
    )
    changes = harness_search.told(found.harness, start)
    say(f"  {section.name}: {changes} (trial {found.step} of {found.trials}, {found.attempts} attempts)")
    return {
        "harness": found.harness.model_dump(mode="json"),
        "step": found.step,
        "validation": _acceptance(validation(found.harness)(model)),
        "seconds": found.seconds,
        "stopped": found.stopped,
        "curve": [row.model_dump(mode="json") for row in found.curve],
        "search": {
            "changes": changes,
            "cases": [task.task_id for task in chosen],
            "rubric": settings.rubric.model_dump(mode="json"),
            "trials": found.trials,
            "attempts": found.attempts,
            "play_cost": found.play_cost,
            "finals": found.finals,
        },
        "bought": found.reflection_cost,
    }


def cases(run: Run, count: int, name: str) -> list[Task]:
    """Validation tasks in a seeded order that takes one of each segment in turn; the first `count`, or all."""
    tasks = sorted(run.validation_tasks(), key=lambda task: task.task_id)
    random.Random(f"{run.manifest.seed}/{name}/cases").shuffle(tasks)
    turns: dict[str, int] = {}
    ranked: list[tuple[int, int, Task]] = []
    for task in tasks:
        turns[task.segment] = turns.get(task.segment, 0) + 1
        ranked.append((turns[task.segment], len(ranked), task))
    return [task for *_, task in sorted(ranked, key=lambda one: one[:2])][:count]


def attempt(run: Run, judged: Judged) -> Attempt:
    """One judged episode as a search counts it."""
    rollout, outcome = judged.rollout, judged.outcome
    return Attempt(
        case=rollout.task.task_id,
        accepted=None if judged.invalid else outcome.accepted,
        cost=run_cost(_Spent(judged), run.manifest.prices),
        violations=len(outcome.violations) + len(rollout.violations) + int(outcome.exploit),
        told=transcript(rollout),
    )


def transcript(rollout: Rollout) -> str:
    """The episode in words: what was seen first, the calls, and what came back; the middle of a long one left out."""
    lines = [*rollout.opening]
    for exchange in rollout.exchanges:
        call = exchange.call
        lines.append(f"> {call.malformed if call.malformed is not None else call.name} {call.arguments or ''}".rstrip())
        lines.append(exchange.result.content)
    text = "\n".join(lines)
    return text if len(text) <= TOLD else f"{text[: TOLD // 2]}\n[...]\n{text[-TOLD // 2 :]}"


class _Spent:
    """What a judged episode used, as `run_cost` prices it."""

    def __init__(self, judged: Judged) -> None:
        rollout = judged.rollout
        self.tokens_in, self.tokens_out = rollout.tokens_in, rollout.tokens_out
        self.sandbox_s, self.verifier_s = rollout.sandbox_s, judged.verifier_s
        self.judge_calls = judged.judge_calls


def _acceptance(found: Any) -> float:
    return float(getattr(found, "acceptance", found))
