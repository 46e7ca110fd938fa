"""GRPO: reinforcement learning on finished multi-turn episodes, advantages relative to the group of one task.

TRL's GRPOTrainer with our own rollouts (Shao et al., 2024, arXiv:2402.03300). Defaults follow what later work found:
no division by the group's deviation (Liu et al., 2025, arXiv:2503.20783), asymmetric clipping, loss per token of the
batch, and no rows without advantage (Yu et al., 2025, DAPO, arXiv:2503.14476).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ratchet.errors import ManifestError, TrainingError
from ratchet.methods import base
from ratchet.methods.base import Guard, Needs, Outcome, Sampler, Validate

NEEDS: Needs = "tasks"
TOKEN_MEAN_LOSSES = ("dapo", "cispo")


class Settings(base.Settings):
    """Hyper-parameters of GRPO."""

    lr_final_share: float = Field(default=0.3, ge=0, le=1, description="Share of `lr` left at the end (cosine).")
    steps: int = Field(default=45, ge=1, description="Batches of rollouts.")
    prompts_per_step: int = Field(default=16, ge=1, description="Tasks per step.")
    group_size: int = Field(default=8, ge=2, description="Episodes per task.")
    temperature: float = Field(default=1.0, gt=0, description="Sampling temperature; log-probs are of this policy.")
    iterations: int = Field(default=1, ge=1, description="Updates on each batch of rollouts.")
    beta: float = Field(default=0.0, ge=0, description="Weight of the KL to the starting policy; 0 for none.")
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="The ratio counts down to 1 - clip_low.")
    clip_high: float = Field(default=0.28, gt=0, description="The ratio counts up to 1 + clip_high.")
    scale_rewards: Literal["none", "group", "batch"] = Field(
        default="none", description="Deviation that advantages are divided by."
    )
    loss_type: Literal["dapo", "grpo", "bnpo", "dr_grpo", "cispo"] = Field(
        default="dapo", description="How TRL averages the loss: over the batch's tokens, per row, or by length."
    )
    ratio_level: Literal["token", "sequence"] = Field(default="token", description="Importance ratio per token or row.")
    ratio: Literal["trainer", "sampler"] = Field(
        default="trainer", description="Whose log-probs the importance ratio is taken against."
    )
    track_kl: bool = Field(
        default=True,
        description="Measure the KL to the starting policy at validations where `beta` is 0 (full weights: a copy).",
    )
    skip_flat: bool = Field(
        default=True, description="Leave rows without advantage out of the loss (only where `beta` is 0)."
    )


def fit(
    model: Any,
    tokenizer: Any,
    task_ids: Sequence[str],
    sampler: Sampler,
    settings: Settings,
    *,
    seed: int,
    output: Path,
    validate: Validate | None = None,
    guard: Guard | None = None,
    max_wall_s: float = math.inf,
    adapter: Mapping[str, Any] | None = None,
    name: str = "grpo",
) -> Outcome:
    """Train on a stream of tasks.

    Args:
        model: causal language model of transformers; it is trained in place.
        tokenizer: its tokenizer (only the pad token is used); saved beside the weights.
        task_ids: training tasks; every pass over them is shuffled.
        sampler: `(model, task_ids, step) -> episodes`, where `task_ids` holds every task `group_size` times in a row
            and the episodes come in the same order. It runs in evaluation mode without gradients, under random states
            that depend only on seed and step.
        settings: hyper-parameters.
        seed: same seed, same sampler, same threads: same weights (float32 on CPU).
        output: folder of the run; an interrupted run in it is gone on with.
        validate: acceptance of the model on validation tasks; chooses the checkpoint.
        guard: rechecks the training right; its error ends the run.
        max_wall_s: wall budget in seconds.
        adapter: LoRA settings, or None for full weights.
        name: shown in progress lines.

    Raises:
        TrainingError: too few tasks, a sampler that breaks its promise, a diverging loss.
        ManifestError: settings that exclude each other.
    """
    if len(set(task_ids)) < settings.prompts_per_step:
        raise TrainingError(
            f"{name}: number of tasks",
            seen=len(set(task_ids)),
            rule=f"at least prompts_per_step = {settings.prompts_per_step} different ones",
            remedy="lower prompts_per_step or lock more training tasks",
        )
    if settings.micro_batch is not None and settings.loss_type not in TOKEN_MEAN_LOSSES:
        raise ManifestError(
            f"methods.{name}.settings.loss_type",
            seen=settings.loss_type,
            rule=f"with micro_batch it must be one of {TOKEN_MEAN_LOSSES}, whose mean does not depend on the split",
            remedy="leave micro_batch out or change loss_type",
        )

    from ratchet.methods import fitting

    fitting.hush()
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig

    from ratchet.methods.callbacks import Watch
    from ratchet.methods.grpo_trainer import EpisodeGRPOTrainer

    fitting.score_targets_only()
    stride = settings.iterations
    every = settings.validate_every or settings.steps
    resume = fitting.prepare(
        output,
        model,
        {
            "method": "grpo",
            "settings": settings.model_dump(),
            "seed": seed,
            "adapter": adapter,
            "tasks": list(task_ids),
        },
    )
    if settings.beta:
        # TRL reads the reference policy from the folder that the configuration names.
        model.save_pretrained(output / "start")
        model.config._name_or_path = str(output / "start")
    watch = Watch(
        name,
        settings,
        output=output,
        tokenizer=tokenizer,
        validate=validate,
        guard=guard,
        max_wall_s=max_wall_s,
        every=every,
        stride=stride,
    )
    common = fitting.arguments(
        settings,
        output=output,
        seed=seed,
        steps=settings.steps * stride,
        rows=settings.prompts_per_step * settings.group_size,
        every=every,
        stride=stride,
    )
    trainer = EpisodeGRPOTrainer(
        sampler=sampler,
        watch=watch,
        seed=seed,
        skip_flat=settings.skip_flat and settings.beta == 0,
        use_sampler_logprobs=settings.ratio == "sampler",
        track_kl=settings.track_kl and settings.beta == 0,
        model=model,
        args=GRPOConfig(
            **common,
            num_generations=settings.group_size,
            num_iterations=stride,
            temperature=settings.temperature,
            beta=settings.beta,
            epsilon=settings.clip_low,
            epsilon_high=settings.clip_high,
            scale_rewards=settings.scale_rewards,
            loss_type=settings.loss_type,
            importance_sampling_level=settings.ratio_level,
            shuffle_dataset=False,
        ),
        train_dataset=Dataset.from_dict({"prompt": schedule(task_ids, settings, seed)}),
        processing_class=tokenizer,
        peft_config=fitting.lora(adapter),
        callbacks=[watch],
    )
    return fitting.run(trainer, watch, resume)


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
