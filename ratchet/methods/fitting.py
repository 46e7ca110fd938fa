"""The part of `fit` that all trained methods share: TRL arguments, LoRA, resuming, running, and the outcome.

TRL does the training. `Quiet` switches off what a self-hosted run must not or need not do: pings to a telemetry
service, and a model card at every checkpoint. Imports torch, transformers, peft: load it inside `fit`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import disable_progress_bars
from transformers import PrinterCallback, ProgressCallback
from transformers.utils.logging import disable_progress_bar

from ratchet import progress
from ratchet.contracts.canonical import digest
from ratchet.errors import ManifestError
from ratchet.methods.base import Adapter, Outcome, Settings, parse
from ratchet.methods.callbacks import COMPLETE, Watch


class Quiet:
    """Mixin in front of a TRL trainer: sends nothing out, writes no model card."""

    def _send_telemetry(self) -> None:
        """Send nothing."""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: the release ledger describes a checkpoint."""


class InOrder:
    """Mixin in front of a TRL trainer: rows come in the order of `indices`, passes included.

    One epoch of a fixed order, so that a resumed run meets the rows that an uninterrupted one would have met.
    """

    indices: Sequence[int]

    def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
        return self.indices


def arguments(
    settings: Settings, *, output: Path, seed: int, steps: int, rows: int, every: int, stride: int = 1
) -> dict[str, Any]:
    """Arguments that every TRL configuration gets.

    Args:
        settings: the method's settings.
        output: folder of the run.
        seed: seed of initialisation and of the trainer's random states.
        steps: optimizer steps in all.
        rows: rows of one optimizer step.
        every: counted steps between validations; checkpoints follow it where the settings name no number.
        stride: optimizer steps per counted step.

    Raises:
        ManifestError: `micro_batch` does not divide the rows.
    """
    micro = settings.micro_batch or rows
    if rows % micro:
        raise ManifestError(
            "methods.settings.micro_batch",
            seen=micro,
            rule=f"it must divide the {rows} rows of a step",
            remedy="choose a divisor",
        )
    return {
        "output_dir": str(output / "checkpoints"),
        "seed": seed,
        "max_steps": steps,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": rows // micro,
        "learning_rate": settings.lr,
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": settings.lr_final_share},
        "warmup_steps": settings.warmup_steps,
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "bf16": settings.precision == "bfloat16",
        "gradient_checkpointing": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": False,
        "remove_unused_columns": False,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "steps",
        "save_steps": (settings.checkpoint_every or every) * stride,
        "save_total_limit": 2,
    }


def lora(adapter: Mapping[str, Any] | None) -> Any:
    """PEFT configuration of the manifest's `adapter`, or None for full weights.

    Raises:
        ManifestError: the settings are not valid.
    """
    if adapter is None:
        return None
    from peft import LoraConfig

    settings = parse(Adapter, adapter, "methods.adapter")
    modules = settings.target_modules
    return LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=modules if isinstance(modules, str) else list(modules),
        task_type="CAUSAL_LM",
    )


def prepare(output: Path, model: Any, identity: Mapping[str, Any]) -> Path | None:
    """Make the folder of a run ready; returns the checkpoint to go on from, or None.

    A folder that holds another run (other weights to start from, settings, seed or data) is cleared of it. A checkpoint
    without its mark of completeness was being written when the process died; it is removed.

    Args:
        output: folder of the run.
        model: the model that training starts from.
        identity: JSON values that must be equal for a checkpoint to belong to this run.
    """
    mark, checkpoints = output / "run.json", output / "checkpoints"
    mine = digest({**identity, "start": weights_digest(model)})
    same = mark.exists() and json.loads(mark.read_text(encoding="utf-8"))["digest"] == mine
    found = list(checkpoints.glob("checkpoint-*"))
    whole = [folder for folder in found if same and (folder / COMPLETE).exists()]
    if whole:
        for folder in set(found) - set(whole):
            shutil.rmtree(folder)
        return max(whole, key=_step)
    for own in ("checkpoints", "best", "best.new", "merged", "start"):
        shutil.rmtree(output / own, ignore_errors=True)
    (output / "curves.jsonl").unlink(missing_ok=True)
    checkpoints.mkdir(parents=True)
    mark.write_text(json.dumps({"digest": mine}), encoding="utf-8")
    return None


def run(trainer: Any, watch: Watch, resume: Path | None) -> Outcome:
    """Train to the end or the budget, and describe what came out.

    Raises:
        TrainingError: the loss diverged.
        RightsError: the guard found the training right gone.
    """
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    resumed = None
    if resume is not None:
        resumed = _step(resume)
        watch.restore(resumed)
        progress.say(f"  {watch.name}: going on from step {resumed}")
    with warnings.catch_warnings():
        # The tokenizer's and the model's special tokens are aligned by TRL at start; transformers then reports it.
        warnings.simplefilter("ignore")
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    best = watch.output / "best"
    kept, adapter = best, None
    model = trainer.model
    if hasattr(model, "merge_and_unload"):
        from peft import load_peft_weights, set_peft_model_state_dict

        set_peft_model_state_dict(model, load_peft_weights(str(best), device="cpu"))
        adapter, kept = best, watch.output / "merged"
        shutil.rmtree(kept, ignore_errors=True)
        model.merge_and_unload().save_pretrained(kept)
        watch.tokenizer.save_pretrained(kept)
    return Outcome(
        checkpoint=kept,
        adapter=adapter,
        step=watch.best_step,
        validation=watch.best,
        curve=watch.curve,
        seconds=watch.seconds,
        stopped=watch.stopped,
        resumed_from=resumed,
    )


def weights_digest(model: Any) -> str:
    """SHA-256 over names, shapes and bytes of a model's weights."""
    total = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        total.update(f"{name}{tuple(weight.shape)}".encode())
        total.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def hush() -> None:
    """Keep libraries from writing to the run's output and from calling home."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # `rollout_func` is the documented hook for own rollouts; TRL's version is pinned, so its notice says nothing new.
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")
    # TRL imports MLflow to profile into it (1 to 2 s); curves reach MLflow from the parent, never from the trainer.
    os.environ.setdefault("DISABLE_MLFLOW_INTEGRATION", "TRUE")
    disable_progress_bar()
    disable_progress_bars()
    for name in ("trl", "transformers", "accelerate", "peft"):
        logging.getLogger(name).setLevel(logging.ERROR)


def score_targets_only() -> None:
    """Have TRL's LM head skip positions without a target on a CPU, as it does on a GPU.

    Elsewhere TRL multiplies every position by the vocabulary and throws the masked ones away (it does so for
    accelerators that compile per shape). Same values, and a quarter less time to train a small policy in which two
    tokens of three are masked. Where another version of TRL decides otherwise, nothing changes.
    """
    from trl.trainer import utils

    original = getattr(utils, "_use_triton", None)
    if original is None or hasattr(original, "on_cpu"):
        return

    def compact(device: torch.device) -> bool:
        return device.type == "cpu" or bool(original(device))

    compact.on_cpu = True  # type: ignore[attr-defined]
    utils._use_triton = compact


def order(count: int, passes: float, seed: int) -> list[int]:
    """Indices of `passes` shuffled passes over `count` items: fixed before training, so a resumed run sees the same."""
    generator = torch.Generator().manual_seed(seed)
    indices: list[int] = []
    while len(indices) < count * passes:
        indices += torch.randperm(count, generator=generator).tolist()
    return indices[: max(1, round(count * passes))]


def _step(folder: Path) -> int:
    return int(folder.name.rsplit("-", 1)[1])
