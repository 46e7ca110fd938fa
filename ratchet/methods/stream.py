"""What the methods that learn from a stream of tasks share: settings, checks, set-up, and the order of the tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from pydantic import Field

from ratchet.errors import ManifestError, NothingToLearn, TrainingError
from ratchet.methods import base
from ratchet.methods.base import Common, Outcome
from ratchet.policies.compute import processes

if TYPE_CHECKING:
    from ratchet.methods.fitting import Begun


class Settings(base.Settings):
    """Hyper-parameters of every method that samples groups of episodes."""

    lr_final_share: float = Field(default=0.3, ge=0, le=1, description="Share of `lr` left at the end (cosine).")
    steps: int = Field(default=45, ge=1, description="Batches of rollouts.")
    prompts_per_step: int = Field(default=16, ge=1, description="Tasks per step.")
    group_size: int = Field(default=8, ge=2, description="Episodes per task.")
    temperature: float | None = Field(
        default=None,
        gt=0,
        description="Sampling temperature; log-probs are of this policy. None for the one that the start acts at, "
        "and 1 where that is greedy.",
    )
    iterations: int = Field(default=1, ge=1, description="Updates on each batch of rollouts.")
    beta: float = Field(default=0.0, ge=0, description="Weight of the KL to the starting policy; 0 for none.")
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="The ratio counts down to 1 - clip_low.")
    clip_high: float = Field(default=0.28, gt=0, description="The ratio counts up to 1 + clip_high.")
    track_kl: bool = Field(
        default=True,
        description="Measure the KL to the starting policy at validations where `beta` is 0 (full weights: a copy).",
    )
    skip_flat: bool = Field(
        default=True, description="Leave rows without advantage out of the loss (only where `beta` is 0)."
    )

    @property
    def rows(self) -> int:
        """Episodes of one step."""
        return self.prompts_per_step * self.group_size


def check_tasks(name: str, task_ids: Sequence[str], settings: Settings) -> None:
    """Refuse fewer different tasks than one step needs.

    Raises:
        TrainingError: names both numbers.
    """
    if len(set(task_ids)) < settings.prompts_per_step:
        raise TrainingError(
            f"{name}: number of tasks",
            seen=len(set(task_ids)),
            rule=f"at least prompts_per_step = {settings.prompts_per_step} different ones",
            remedy="lower prompts_per_step or lock more training tasks",
        )


def begin(
    method: str, model: Any, tokenizer: Any, task_ids: Sequence[str], settings: Settings, **common: Unpack[Common]
) -> Begun:
    """Set a run up as `fitting.begin` does, with what every trainer of groups of episodes gets besides.

    Raises:
        ManifestError: `micro_batch` does not divide the rows, the adapter's settings are not valid, or several
            processes were launched.
    """
    from ratchet.methods import fitting

    if processes() > 1:
        raise ManifestError(
            f"methods.{common.get('name', method)}",
            seen=f"{processes()} processes",
            rule="a method that acts trains in one process, on one device",
            remedy="launch its trainer without accelerate; demonstrations and pairs are trained on by several",
        )

    begun = fitting.begin(
        method, model, tokenizer, settings, {"tasks": list(task_ids)},
        steps=settings.steps, rows=settings.rows, every=settings.validate_every or settings.steps,
        stride=settings.iterations, **common,
    )  # fmt: skip
    from datasets import Dataset

    if settings.beta:
        fitting.keep_start(model, common["output"])
    arguments = {
        "num_generations": settings.group_size,
        "num_iterations": settings.iterations,
        "temperature": settings.temperature or 1.0,
        "beta": settings.beta,
        "epsilon": settings.clip_low,
        "epsilon_high": settings.clip_high,
        "shuffle_dataset": False,
    }
    trainer = {
        "watch": begun.watch,
        "seed": common["seed"],
        "skip_flat": settings.skip_flat and settings.beta == 0,
        "track_kl": settings.track_kl and settings.beta == 0,
        "train_dataset": Dataset.from_dict({"prompt": schedule(task_ids, settings, common["seed"])}),
    }
    return begun._replace(arguments={**begun.arguments, **arguments}, trainer={**begun.trainer, **trainer})


def taught(name: str, outcome: Outcome) -> Outcome:
    """Return what a run left behind, if any of its episodes had an advantage.

    Raises:
        NothingToLearn: in no group did the rewards of two valid episodes differ, so that no weight has moved.
    """
    if not any(row.metrics.get("rows_with_advantage") for row in outcome.curve):
        raise NothingToLearn(
            f"data of {name}",
            seen=f"no advantage in {len(outcome.curve)} steps",
            rule="in some group the rewards of two valid episodes must differ",
            remedy="start from a policy that is accepted at times, raise group_size, or choose easier tasks",
        )
    return outcome


def schedule(task_ids: Sequence[str], settings: Settings, seed: int) -> list[str]:
    """Tasks of all steps, in order: whole shuffled passes, each cut to full steps, so no step holds a task twice."""
    from ratchet.methods import fitting

    per_step, wanted = settings.prompts_per_step, settings.steps * settings.prompts_per_step
    unique = list(dict.fromkeys(task_ids))
    whole = len(unique) // per_step * per_step
    passes = math.ceil(wanted / whole)
    indices = fitting.order(len(unique), passes, seed)
    ordered: list[str] = []
    for start in range(0, len(indices), len(unique)):
        ordered += [unique[index] for index in indices[start : start + whole]]
    return ordered[:wanted]
