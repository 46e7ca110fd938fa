"""ORPO: imitate the preferred trajectory and disfavour the rejected one in one loss, without a reference policy.

Hong et al., 2024 (arXiv:2403.07691), equations 6 and 7: with P(y|x) the length-normalised likelihood of a trajectory
and odds P / (1 - P),

    loss = mean over pairs of  -log P(chosen) - beta x log sigmoid(log odds(chosen) - log odds(rejected))

TRL's ORPOTrainer on token ids. TRL takes the first term over prompt and tool results too; here both terms run over the
tokens that the policy wrote, and over nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from pydantic import Field

from ratchet.methods import base
from ratchet.methods.base import Common, Needs, Outcome, PairSample

NEEDS: Needs = "pairs"


class Settings(base.Passes):
    """Hyper-parameters of ORPO."""

    lr: float = Field(default=5e-4, gt=0, description="Highest learning rate (AdamW).")
    beta: float = Field(default=0.1, gt=0, description="Weight of the odds ratio beside the likelihood.")


def fit(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[PairSample],
    settings: Settings,
    **common: Unpack[Common],
) -> Outcome:
    """Train on pairs of trajectories.

    Args:
        model: causal language model of transformers; it is trained in place.
        tokenizer: its tokenizer (only the pad token is used); saved beside the weights.
        pairs: trajectories with masks; each of the two must hold a token that carries loss.
        settings: hyper-parameters.
        **common: what every method takes; see `ratchet.methods.base.Common`.

    Raises:
        NothingToLearn: there is no pair.
        TrainingError: a bad mask, a diverging loss.
    """
    base.check_pairs(common.get("name", "orpo"), pairs)

    from ratchet.methods import fitting

    rows = [row(pair) for pair in pairs]
    indices, steps, every = fitting.passes(settings, len(rows), common["seed"])
    begun = fitting.begin(
        "orpo", model, tokenizer, settings, {"rows": rows},
        steps=steps, rows=settings.batch_size, every=every, **common,
    )  # fmt: skip
    from datasets import Dataset
    from trl.experimental.orpo import ORPOConfig

    from ratchet.methods.orpo_trainer import PairORPOTrainer

    trainer = PairORPOTrainer(
        indices,
        args=ORPOConfig(**begun.arguments, beta=settings.beta),
        train_dataset=Dataset.from_list(rows),
        **begun.trainer,
    )
    return fitting.run(trainer, begun)


def row(pair: PairSample) -> dict[str, list[int]]:
    """A pair in TRL's columns: ids, attention mask and labels of both, -100 where the policy did not write."""
    columns = {}
    for side, ids, mask in (
        ("chosen", pair.chosen_ids, pair.chosen_mask),
        ("rejected", pair.rejected_ids, pair.rejected_mask),
    ):
        whole = [*pair.prompt_ids, *ids]
        written = [token if bit else -100 for token, bit in zip(ids, mask, strict=True)]
        columns[f"{side}_input_ids"] = whole
        columns[f"{side}_attention_mask"] = [1] * len(whole)
        columns[f"{side}_labels"] = [-100] * len(pair.prompt_ids) + written
    return columns
