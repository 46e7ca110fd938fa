"""DPO: prefer one trajectory of a task over another, relative to the starting policy (Rafailov et al., 2023,
arXiv:2305.18290).

TRL's DPOTrainer on token ids. TRL masks nothing after the prompt, so in a multi-turn trajectory the tool results would
carry loss: `MaskedPreference`, a collator, narrows TRL's `completion_mask` to the tokens that the policy wrote. The
log-probs of the starting policy are computed once, before the first step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ratchet.errors import TrainingError
from ratchet.methods import base
from ratchet.methods.base import Guard, Needs, Outcome, PairSample, Validate

NEEDS: Needs = "pairs"


class Settings(base.Settings):
    """Hyper-parameters of DPO."""

    lr: float = Field(default=2e-4, gt=0, description="Highest learning rate (AdamW).")
    epochs: float = Field(default=1.0, gt=0, description="Passes over the pairs.")
    batch_size: int = Field(default=16, ge=1, description="Pairs per step.")
    max_steps: int | None = Field(default=None, ge=1, description="Stop after so many steps, whatever `epochs` says.")
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
    *,
    seed: int,
    output: Path,
    validate: Validate | None = None,
    guard: Guard | None = None,
    max_wall_s: float = math.inf,
    adapter: Mapping[str, Any] | None = None,
    name: str = "dpo",
) -> Outcome:
    """Train on pairs of trajectories.

    Args:
        model: causal language model of transformers; it is trained in place, and is the reference as it comes in.
        tokenizer: its tokenizer (only the pad token is used); saved beside the weights.
        pairs: trajectories with masks; each of the two must hold a token that carries loss.
        settings: hyper-parameters.
        seed: same seed, same data, same threads: same weights (float32 on CPU).
        output: folder of the run; an interrupted run in it is gone on with.
        validate: acceptance of the model on validation tasks; chooses the checkpoint.
        guard: rechecks the training right; its error ends the run.
        max_wall_s: wall budget in seconds.
        adapter: LoRA settings, or None for full weights.
        name: shown in progress lines.

    Raises:
        TrainingError: a bad mask, no pairs, a diverging loss.
    """
    if not pairs:
        raise TrainingError(name, seen=0, rule="at least one pair", remedy="score rollouts whose outcomes differ")
    for index, pair in enumerate(pairs):
        base.check_masks(f"{name}: preferred trajectory {index}", pair.chosen_ids, pair.chosen_mask)
        if not pair.prompt_ids:
            raise TrainingError(f"{name}: prompt of pair {index}", rule="at least one token", remedy="leave it out")
        base.check_masks(f"{name}: rejected trajectory {index}", pair.rejected_ids, pair.rejected_mask)

    from ratchet.methods import fitting

    fitting.hush()
    from datasets import Dataset
    from trl.trainer.dpo_config import DPOConfig

    from ratchet.methods.callbacks import Watch
    from ratchet.methods.dpo_trainer import MaskedPreference, PairDPOTrainer

    fitting.score_targets_only()
    rows = [{key: list(value) for key, value in pair._asdict().items()} for pair in pairs]
    indices = fitting.order(len(rows), settings.epochs, seed)
    steps = math.ceil(len(indices) / settings.batch_size)
    steps = min(steps, settings.max_steps or steps)
    every = settings.validate_every or max(1, math.ceil(len(rows) / settings.batch_size))
    resume = fitting.prepare(
        output,
        model,
        {"method": "dpo", "settings": settings.model_dump(), "seed": seed, "adapter": adapter, "rows": rows},
    )
    watch = Watch(
        name,
        settings,
        output=output,
        tokenizer=tokenizer,
        validate=validate,
        guard=guard,
        max_wall_s=max_wall_s,
        every=every,
    )
    common = fitting.arguments(settings, output=output, seed=seed, steps=steps, rows=settings.batch_size, every=every)
    losses: list[str] = [settings.loss_type, "sft"] if settings.sft_weight else [settings.loss_type]
    trainer = PairDPOTrainer(
        indices,
        model=model,
        args=DPOConfig(
            **common,
            beta=settings.beta,
            loss_type=losses,
            loss_weights=[1.0, settings.sft_weight][: len(losses)],
            max_length=None,
            precompute_ref_log_probs=True,
            precompute_ref_batch_size=settings.micro_batch or settings.batch_size,
        ),
        data_collator=MaskedPreference(pad_token_id=tokenizer.pad_token_id),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=fitting.lora(adapter),
        callbacks=[watch],
    )
    return fitting.run(trainer, watch, resume)
