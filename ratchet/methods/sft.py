"""SFT: imitate curated demonstrations; only the tokens that the assistant wrote carry loss.

TRL's SFTTrainer on token ids (negative log-likelihood, mean over the tokens of a batch that carry loss). Whole
sequences only: nothing is truncated, packed or tokenised here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from ratchet.errors import TrainingError
from ratchet.methods import base
from ratchet.methods.base import Guard, Needs, Outcome, Tokens, Validate

NEEDS: Needs = "demonstrations"


class Settings(base.Settings):
    """Hyper-parameters of SFT."""

    lr: float = Field(default=2e-3, gt=0, description="Highest learning rate (AdamW).")
    epochs: float = Field(default=3.0, gt=0, description="Passes over the demonstrations.")
    batch_size: int = Field(default=16, ge=1, description="Demonstrations per step.")
    max_steps: int | None = Field(default=None, ge=1, description="Stop after so many steps, whatever `epochs` says.")


def labels(sample: Tokens) -> list[int]:
    """Targets of one sequence: the token id where it carries loss, -100 (ignored) elsewhere."""
    return [token if bit else -100 for token, bit in zip(sample.input_ids, sample.sampled_mask, strict=True)]


def fit(
    model: Any,
    tokenizer: Any,
    samples: Sequence[Tokens],
    settings: Settings,
    *,
    seed: int,
    output: Path,
    validate: Validate | None = None,
    guard: Guard | None = None,
    max_wall_s: float = math.inf,
    adapter: Mapping[str, Any] | None = None,
    name: str = "sft",
) -> Outcome:
    """Train on demonstrations.

    Args:
        model: causal language model of transformers; it is trained in place.
        tokenizer: its tokenizer (only the pad token is used); saved beside the weights.
        samples: sequences with their masks; every one must hold a token that carries loss.
        settings: hyper-parameters.
        seed: same seed, same data, same threads: same weights (float32 on CPU).
        output: folder of the run; an interrupted run in it is gone on with.
        validate: acceptance of the model on validation tasks; chooses the checkpoint.
        guard: rechecks the training right; its error ends the run.
        max_wall_s: wall budget in seconds.
        adapter: LoRA settings, or None for full weights.
        name: shown in progress lines.

    Raises:
        TrainingError: a bad mask, no samples, a diverging loss.
    """
    if not samples:
        raise TrainingError(name, seen=0, rule="at least one demonstration", remedy="check the dataset's grant")
    for index, sample in enumerate(samples):
        base.check_masks(f"{name}: demonstration {index}", sample.input_ids, sample.sampled_mask)

    from ratchet.methods import fitting

    fitting.hush()
    from datasets import Dataset
    from trl.trainer.sft_trainer import SFTConfig, SFTTrainer

    from ratchet.methods.callbacks import Watch

    fitting.score_targets_only()
    rows = [{"input_ids": list(sample.input_ids), "labels": labels(sample)} for sample in samples]
    indices = fitting.order(len(rows), settings.epochs, seed)
    steps = math.ceil(len(indices) / settings.batch_size)
    steps = min(steps, settings.max_steps or steps)
    every = settings.validate_every or max(1, math.ceil(len(rows) / settings.batch_size))
    resume = fitting.prepare(
        output,
        model,
        {"method": "sft", "settings": settings.model_dump(), "seed": seed, "adapter": adapter, "rows": rows},
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
    quiet = type("QuietSFTTrainer", (fitting.Quiet, fitting.InOrder, SFTTrainer), {"indices": indices})
    trainer = quiet(
        model=model,
        args=SFTConfig(**common, max_length=None, dataset_kwargs={"skip_prepare_dataset": True}),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=fitting.lora(adapter),
        callbacks=[watch],
    )
    return fitting.run(trainer, watch, resume)
