"""GSPO: GRPO with one importance ratio per episode, of its length-normalised likelihood (Zheng et al., 2025,
arXiv:2507.18071).

TRL's GRPOTrainer with `importance_sampling_level="sequence"`, with the paper's clipping. The ratio is 1 and clipping
without effect unless `iterations` is over 1 or `ratio` is `sampler`. A reward per step has no place in it: one ratio
per episode would spread it over all tokens, so that is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack

from pydantic import Field

from ratchet.methods import grpo
from ratchet.methods.base import Common, Needs, Outcome, Sampler

NEEDS: Needs = "tasks"


class Settings(grpo.Settings):
    """Hyper-parameters of GSPO."""

    iterations: int = Field(default=4, ge=1, description="Updates on each batch of rollouts.")
    clip_low: float = Field(default=3e-4, gt=0, lt=1, description="The ratio counts down to 1 - clip_low.")
    clip_high: float = Field(default=4e-4, gt=0, description="The ratio counts up to 1 + clip_high.")
    loss_type: Literal["dapo", "grpo", "bnpo", "dr_grpo", "cispo"] = Field(
        default="grpo", description="How TRL averages the loss: over the batch's tokens, per row, or by length."
    )
    ratio_level: Literal["sequence"] = Field(default="sequence", description="Importance ratio per row.")


def fit(
    model: Any,
    tokenizer: Any,
    task_ids: Sequence[str],
    sampler: Sampler,
    settings: Settings,
    **common: Unpack[Common],
) -> Outcome:
    """Train on a stream of tasks; see `ratchet.methods.grpo.fit` for arguments and errors."""
    return grpo.train("gspo", model, tokenizer, task_ids, sampler, settings, **common)
