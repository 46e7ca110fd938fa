"""DPO: prefer one trajectory of a task over another, relative to the starting policy (Rafailov et al., 2023,
arXiv:2305.18290).

TRL's DPOTrainer on token ids. TRL masks nothing after the prompt, so in a multi-turn trajectory the tool results would
carry loss: `MaskedPreference`, a collator, narrows TRL's `completion_mask` to the tokens that the policy wrote. The
log-probs of the starting policy are computed once, before the first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Unpack

from pydantic import Field

from ratchet.methods import base
from ratchet.methods.base import Common, Needs, Outcome, PairSample

NEEDS: Needs = "pairs"


class Settings(base.Passes):
    """Hyper-parameters of DPO."""

    lr: float = Field(default=2e-4, gt=0, description="Highest learning rate (AdamW).")
    beta: float = Field(default=0.1, gt=0, description="Strength of the tie to the starting policy.")
    loss_type: Literal["sigmoid", "sigmoid_norm", "ipo", "hinge"] = Field(
        default="sigmoid", description="Loss on the margin, by TRL's names."
    )
    sft_weight: float = Field(default=0.0, ge=0, description="Weight of the likelihood of the preferred trajectory.")


def fit(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[PairSample],
    settings: Settings,
    **common: Unpack[Common],
) -> Outcome:
    """Train on pairs of trajectories.

    Args:
        model: causal language model of transformers; it is trained in place, and is the reference as it comes in.
        tokenizer: its tokenizer (only the pad token is used); saved beside the weights.
        pairs: trajectories with masks; each of the two must hold a token that carries loss.
        settings: hyper-parameters.
        **common: what every method takes; see `ratchet.methods.base.Common`.

    Raises:
        NothingToLearn: there is no pair.
        TrainingError: a bad mask, a diverging loss.
    """
    base.check_pairs(common.get("name", "dpo"), pairs)

    from ratchet.methods import fitting

    rows = [{key: list(value) for key, value in pair._asdict().items()} for pair in pairs]
    indices, steps, every = fitting.passes(settings, len(rows), common["seed"])
    begun = fitting.begin(
        "dpo", model, tokenizer, settings, {"rows": rows},
        steps=steps, rows=settings.batch_size, every=every, **common,
    )  # fmt: skip
    from datasets import Dataset
    from trl.trainer.dpo_config import DPOConfig

    from ratchet.methods.dpo_trainer import MaskedPreference, PairDPOTrainer

    losses: list[str] = [settings.loss_type, "sft"] if settings.sft_weight else [settings.loss_type]
    trainer = PairDPOTrainer(
        indices,
        args=DPOConfig(
            **begun.arguments,
            beta=settings.beta,
            loss_type=losses,
            loss_weights=[1.0, settings.sft_weight][: len(losses)],
            max_length=None,
            precompute_ref_log_probs=True,
            precompute_ref_batch_size=settings.micro_batch or settings.batch_size,
        ),
        data_collator=MaskedPreference(pad_token_id=tokenizer.pad_token_id),
        train_dataset=fitting.shared(Dataset.from_list(rows), common["output"]),
        **begun.trainer,
    )
    return fitting.run(trainer, begun)
