"""RLOO: REINFORCE with a leave-one-out baseline (Ahmadian et al., 2024, arXiv:2402.14740).

TRL's RLOOTrainer over our finished multi-turn episodes. An episode is one action: its log-prob is the sum over the
tokens that the policy sampled, its advantage the reward less the mean of the other valid episodes of its group, and
with `beta` the KL to the starting policy is taken off the reward. With one update per batch the gradient is
REINFORCE's. A reward per step has no place in it, and is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from pydantic import Field

from ratchet.methods import stream
from ratchet.methods.base import Common, Needs, Outcome, Sampler

NEEDS: Needs = "tasks"


class Settings(stream.Settings):
    """Hyper-parameters of RLOO."""

    clip_high: float = Field(default=0.2, gt=0, description="The ratio counts up to 1 + clip_high.")
    normalize_advantages: bool = Field(
        default=False, description="Centre advantages and divide them by their deviation over the batch."
    )


def fit(
    model: Any,
    tokenizer: Any,
    task_ids: Sequence[str],
    sampler: Sampler,
    settings: Settings,
    **common: Unpack[Common],
) -> Outcome:
    """Train on a stream of tasks; see `ratchet.methods.grpo.fit` for the arguments.

    Raises:
        NothingToLearn: no group had episodes whose rewards differ.
        TrainingError: too few tasks, a sampler that breaks its promise, a diverging loss.
        ManifestError: `micro_batch` does not divide the rows, or episodes bring step rewards.
    """
    name = common.get("name", "rloo")
    stream.check_tasks(name, task_ids, settings)

    from ratchet.methods import fitting

    begun = stream.begin("rloo", model, tokenizer, task_ids, settings, **common)
    from trl.trainer.rloo_config import RLOOConfig

    from ratchet.methods.rloo_trainer import EpisodeRLOOTrainer

    trainer = EpisodeRLOOTrainer(
        sampler=sampler,
        args=RLOOConfig(**begun.arguments, normalize_advantages=settings.normalize_advantages),
        **begun.trainer,
    )
    return stream.taught(name, fitting.run(trainer, begun))
