"""The part of `fit` that all trained methods share: one set-up, TRL arguments, LoRA, resuming, running, the outcome.

TRL does the training. `Quiet` switches off what a self-hosted run must not or need not do: pings to a telemetry
service, and a model card at every checkpoint. Imports torch, transformers, peft: load it inside `fit`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import torch
from transformers import PrinterCallback, ProgressCallback

from ratchet import progress
from ratchet.contracts.canonical import digest
from ratchet.errors import ManifestError
from ratchet.methods.base import Adapter, Common, Outcome, Passes, Settings, parse
from ratchet.methods.callbacks import COMPLETE, Watch, together
from ratchet.methods.libraries import hush, score_targets_only
from ratchet.policies.compute import ACCELERATE, compute, is_first, processes


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


class Begun(NamedTuple):
    """A run that is set up: what its TRL trainer gets, and what `run` needs."""

    arguments: dict[str, Any]
    """Keywords for TRL's configuration."""
    trainer: dict[str, Any]
    """Keywords for TRL's trainer: model, tokenizer, adapter, callbacks."""
    watch: Watch
    resume: Path | None


class Order(NamedTuple):
    """Which rows a method goes over, in which order, and how that falls into steps."""

    indices: list[int]
    steps: int
    every: int
    """Steps between validations."""


def passes(settings: Passes, count: int, seed: int) -> Order:
    """Order `count` rows into the steps that the settings ask for; validation is once per pass unless they say."""
    indices = order(count, settings.epochs, seed)
    steps = math.ceil(len(indices) / settings.batch_size)
    every = settings.validate_every or max(1, math.ceil(count / settings.batch_size))
    return Order(indices, min(steps, settings.max_steps or steps), every)


def begin(
    method: str,
    model: Any,
    tokenizer: Any,
    settings: Settings,
    learns: Mapping[str, Any],
    *,
    steps: int,
    rows: int,
    every: int,
    stride: int = 1,
    **common: Unpack[Common],
) -> Begun:
    """Set a run up: its folder, what watches it, and what every TRL trainer gets.

    Args:
        method: name of the method; with model, settings, seed and `learns` it tells one run from another.
        model: causal language model of transformers, as training finds it.
        tokenizer: its tokenizer; saved beside the weights.
        settings: the method's settings.
        learns: JSON values of what the run learns from.
        steps: counted steps in all.
        rows: rows of one optimizer step.
        every: counted steps between validations.
        stride: optimizer steps per counted step.
        **common: see `Common`.

    Raises:
        ManifestError: `micro_batch` does not divide the rows, the adapter's settings are not valid, or the processes
            that train together would each hold a part of the model.
    """
    refuse_sharded()
    output, seed, adapter = common["output"], common["seed"], common.get("adapter")
    hush()
    score_targets_only()
    # Everything that may refuse comes before the folder of an earlier run is cleared.
    given = arguments(settings, output=output, seed=seed, steps=steps * stride, rows=rows, every=every, stride=stride)
    peft = lora(adapter)
    identity = {"method": method, "settings": settings.model_dump(), "seed": seed, "adapter": adapter, **learns}
    resume = prepare(output, model, identity)
    together()
    watch = Watch(
        common.get("name", method),
        settings,
        output=output,
        tokenizer=tokenizer,
        validate=common.get("validate"),
        guard=common.get("guard"),
        max_wall_s=common.get("max_wall_s", math.inf),
        spend=common.get("spend"),
        every=every,
        stride=stride,
    )
    trainer = {"model": model, "processing_class": tokenizer, "peft_config": peft, "callbacks": [watch]}
    return Begun(given, trainer, watch, resume)


def refuse_sharded() -> None:
    """Raise ManifestError where `accelerate` was told to part a model among processes: each must hold it whole."""
    for kind in ("FSDP", "DEEPSPEED"):
        if os.environ.get(f"ACCELERATE_USE_{kind}", "false") == "true":
            raise ManifestError(
                ACCELERATE,
                seen=kind,
                rule="processes train together on whole models (`distributed_type: MULTI_GPU`)",
                remedy="configure that, with an adapter where a model is large, or train in one process",
            )


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
    several = processes()
    micro = settings.micro_batch or max(1, rows // several)
    if rows % (micro * several):
        raise ManifestError(
            "methods.settings.micro_batch",
            seen=micro,
            rule=f"it must divide the {rows} rows of a step" + (f" over {several} processes" if several > 1 else ""),
            remedy="choose a divisor",
        )
    return {
        "output_dir": str(output / "checkpoints"),
        # The trainer takes a GPU wherever there is one, and the sampler is where the configuration says.
        "use_cpu": compute().device == "cpu",
        "seed": seed,
        "max_steps": steps,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": rows // (micro * several),
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
    without its mark of completeness was being written when the process died; it is removed. Of several processes the
    first one does all this, and `together` has the others wait for it.

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
        for folder in set(found) - set(whole) if is_first() else ():
            shutil.rmtree(folder)
        return max(whole, key=_step)
    if not is_first():
        return None
    for own in ("checkpoints", "best", "best.new", "merged", "start"):
        shutil.rmtree(output / own, ignore_errors=True)
    (output / "curves.jsonl").unlink(missing_ok=True)
    checkpoints.mkdir(parents=True)
    mark.write_text(json.dumps({"digest": mine}), encoding="utf-8")
    return None


def keep_start(model: Any, output: Path) -> None:
    """Save the policy that training starts from where TRL reads its reference: the folder that the model names."""
    model.save_pretrained(output / "start")
    model.config._name_or_path = str(output / "start")


def shared(dataset: Any, output: Path) -> Any:
    """The dataset, read from one place by all processes that train together.

    TRL keeps the log-probs of the starting policy beside the dataset's file; of a dataset that was made in memory each
    process has a folder of its own.
    """
    if processes() == 1:
        return dataset
    from datasets import load_from_disk

    place = output / "rows"
    if is_first():
        shutil.rmtree(place, ignore_errors=True)
        dataset.save_to_disk(str(place))
    together()
    return load_from_disk(str(place))


def run(trainer: Any, begun: Begun) -> Outcome:
    """Train to the end or the budget, and describe what came out.

    Raises:
        TrainingError: the loss diverged.
        RightsError: the guard found the training right gone.
    """
    watch, resume = begun.watch, begun.resume
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
    if hasattr(model, "merge_and_unload") and is_first():
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
        outcomes=watch.outcomes,
    )


def weights_digest(model: Any) -> str:
    """SHA-256 over names, shapes and bytes of a model's weights."""
    total = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        total.update(f"{name}{tuple(weight.shape)}".encode())
        total.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def order(count: int, passes: float, seed: int) -> list[int]:
    """Indices of `passes` shuffled passes over `count` items: fixed before training, so a resumed run sees the same."""
    generator = torch.Generator().manual_seed(seed)
    indices: list[int] = []
    while len(indices) < count * passes:
        indices += torch.randperm(count, generator=generator).tolist()
    return indices[: max(1, round(count * passes))]


def _step(folder: Path) -> int:
    return int(folder.name.rsplit("-", 1)[1])
