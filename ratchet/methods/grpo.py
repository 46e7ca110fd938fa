"""GRPO: reinforcement learning on finished multi-turn episodes, advantages relative to the group of one task.

TRL's GRPOTrainer with our own rollouts (Shao et al., 2024, arXiv:2402.03300). Defaults follow what later work found:
no division by the group's deviation (Liu et al., 2025, arXiv:2503.20783), asymmetric clipping, loss per token of the
batch, and no rows without advantage (Yu et al., 2025, DAPO, arXiv:2503.14476).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack

from pydantic import Field

from ratchet.errors import ManifestError
from ratchet.methods import stream
from ratchet.methods.base import Common, Needs, Outcome, Sampler

NEEDS: Needs = "tasks"
SPLIT_DEPENDENT_LOSSES = ("bnpo",)
"""Losses that average over the tokens of a micro-batch, so that their mean depends on the split."""


class Settings(stream.Settings):
    """Hyper-parameters of GRPO."""

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


def fit(
    model: Any,
    tokenizer: Any,
    task_ids: Sequence[str],
    sampler: Sampler,
    settings: Settings,
    **common: Unpack[Common],
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
        **common: what every method takes; see `ratchet.methods.base.Common`.

    Raises:
        NothingToLearn: no group had episodes whose rewards differ.
        TrainingError: too few tasks, a sampler that breaks its promise, a diverging loss.
        ManifestError: settings that exclude each other.
    """
    return train("grpo", model, tokenizer, task_ids, sampler, settings, **common)


def train(
    method: str,
    model: Any,
    tokenizer: Any,
    task_ids: Sequence[str],
    sampler: Sampler,
    settings: Settings,
    **common: Unpack[Common],
) -> Outcome:
    """Train by `method`, a method of GRPO's family; see `fit`."""
    name = common.get("name", method)
    stream.check_tasks(name, task_ids, settings)
    if settings.micro_batch is not None and settings.loss_type in SPLIT_DEPENDENT_LOSSES:
        raise ManifestError(
            f"methods.{name}.settings.loss_type",
            seen=settings.loss_type,
            rule="with micro_batch it must be one whose mean does not depend on the split",
            remedy="leave micro_batch out or change loss_type",
        )

    from ratchet.methods import fitting

    begun = stream.begin(method, model, tokenizer, task_ids, settings, **common)
    from trl.trainer.grpo_config import GRPOConfig

    from ratchet.methods.grpo_trainer import EpisodeGRPOTrainer

    trainer = EpisodeGRPOTrainer(
        sampler=sampler,
        use_sampler_logprobs=settings.ratio == "sampler",
        args=GRPOConfig(
            **begun.arguments,
            scale_rewards=settings.scale_rewards,
            loss_type=settings.loss_type,
            importance_sampling_level=settings.ratio_level,
        ),
        **begun.trainer,
    )
    return stream.taught(name, fitting.run(trainer, begun))
