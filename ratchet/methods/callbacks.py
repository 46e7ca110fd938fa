"""What watches a training run: curve, validation, best checkpoint, budgets, divergence, rights.

One `Watch` is attached to a TRL trainer as a callback. Per step, in this order: gradients that are not finite stop the
run before they touch a weight; the training right is rechecked; validation runs where it is due and the best weights
are kept; the wall budget is checked; the row of the curve is written. What an interrupted run needs to go on lies in
the output folder: `checkpoints/` (weights, optimizer, scheduler, random states), `curves.jsonl`, `best/`.

Imports torch and transformers: load it inside `fit`.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ratchet import progress
from ratchet.errors import TrainingError
from ratchet.methods.base import Curve, Guard, Settings, Spend, Stopped, Validate, Validation
from ratchet.policies.compute import compute, is_first, processes

COMPLETE = "complete"
WINDOW = 5
WAIT_S = 7200.0
"""How long processes wait for each other: while one validates, the others do."""
LOGGED = ("rewards/margins", "rewards/accuracies", "mean_token_accuracy", "nll_loss", "log_odds_ratio")
"""Figures of TRL's own log that go under `metrics`."""


class Watch(TrainerCallback):
    """Callback that records and limits one training run."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        *,
        output: Path,
        tokenizer: Any,
        validate: Validate | None,
        guard: Guard | None,
        max_wall_s: float,
        spend: Spend | None,
        every: int,
        stride: int = 1,
    ) -> None:
        """Prepare to watch.

        Args:
            name: shown in progress lines.
            settings: the method's settings.
            output: folder of the run.
            tokenizer: saved beside the best weights.
            validate: acceptance on validation tasks; None to keep the last weights.
            guard: raises RightsError where the training right has gone.
            max_wall_s: wall budget in seconds, over all resumed parts.
            spend: budget in money, likewise; None for none.
            every: steps between validations, in units of `stride`.
            stride: optimizer steps per counted step (GRPO's iterations over one batch of rollouts).
        """
        self.name, self.settings, self.output, self.tokenizer = name, settings, output, tokenizer
        self.validate, self.guard, self.max_wall_s, self.spend = validate, guard, max_wall_s, spend
        self.every, self.stride = every * stride, stride
        self.curve: list[Curve] = []
        self.best: float | None = None
        self.best_step = 0
        self.outcomes: Mapping[str, bool] | None = None
        self.stopped: Stopped = "finished"
        self.before_s = 0.0
        self.notes: dict[str, Any] = {}
        self._started = time.monotonic()
        self._validation: float | None = None
        self._shown = 0.0

    def restore(self, step: int) -> None:
        """Take over the curve and the best checkpoint of the part of the run before `step`."""
        path = self.output / "curves.jsonl"
        rows = [Curve.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.curve = [row for row in rows if row.step <= step]
        self.before_s = self.curve[-1].seconds if self.curve else 0.0
        if is_first():
            path.write_text("".join(row.model_dump_json() + "\n" for row in self.curve), encoding="utf-8")
        record = self.output / "best" / "step.json"
        if record.exists():
            kept = json.loads(record.read_text(encoding="utf-8"))
            self.best, self.best_step = kept["validation"], kept["step"]
            self.outcomes = kept.get("outcomes")

    @property
    def seconds(self) -> float:
        """Wall time so far, resumed time included."""
        return self.before_s + time.monotonic() - self._started

    def note(self, **figures: Any) -> None:
        """Add figures to the row of the step in progress, by the names of `Curve`'s fields."""
        metrics = {**self.notes.get("metrics", {}), **figures.pop("metrics", {})}
        self.notes.update(figures, metrics=metrics)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Recheck the right before the first step."""
        self._started = time.monotonic()
        if self.guard is not None:
            self.guard()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop before a gradient that is not finite reaches the weights."""
        bad = [
            name
            for name, weight in kwargs["model"].named_parameters()
            if weight.grad is not None and not torch.isfinite(weight.grad).all()
        ]
        if bad:
            raise TrainingError(
                f"{self.name}: the gradient of {bad[0]} at step {state.global_step + 1}",
                seen=f"{len(bad)} tensors not finite",
                rule=f"every gradient must be finite ({self._history()})",
                remedy="lower lr or max_grad_norm, or look for an extreme reward or log-prob in the data",
            )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Recheck the right, validate where it is due, and stop when the budget is spent."""
        step = state.global_step
        whole = step % self.stride == 0
        # Where validation is due too: for short data that is every epoch, and may come before `guard_every` steps.
        asked = step % (self.settings.guard_every * self.stride) == 0 or step % self.every == 0
        if self.guard is not None and (asked or step >= state.max_steps):
            self.guard()
        spent = agreed(self._budget_spent())
        if whole and step < state.max_steps and spent is not None:
            self.stopped = spent
            control.should_training_stop = True
            control.should_save = True
        if whole and (step % self.every == 0 or step >= state.max_steps or control.should_training_stop):
            if is_first():
                self._keep_best(kwargs["model"], step)
            together()
        return control

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write the step's row and stop on divergence."""
        if logs is None or "loss" not in logs:
            return
        row = self._row(state.global_step, logs)
        self.curve.append(row)
        if is_first():
            with (self.output / "curves.jsonl").open("a", encoding="utf-8") as file:
                file.write(row.model_dump_json() + "\n")
        self._refuse_divergence(row)
        if not is_first():
            return
        if row.validation_acceptance is not None or self.seconds - self._shown >= 5 or state.global_step == 1:
            self._shown = self.seconds
            parts = [f"loss {row.loss:.4f}" if row.loss is not None else "loss not finite"]
            parts += [f"reward {row.reward:.3f}"] if row.reward is not None else []
            parts += [f"validation {row.validation_acceptance:.3f}"] if row.validation_acceptance is not None else []
            parts += [f"invalid {row.invalid_share:.1%}"] if row.invalid_share else []
            progress.say(f"  {self.name}: step {state.global_step}/{state.max_steps} · {' · '.join(parts)}")

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Mark a checkpoint as whole: a run killed while it saves leaves one without this mark."""
        together()
        if is_first():
            (Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / COMPLETE).touch()

    def _budget_spent(self) -> Stopped | None:
        if self.seconds >= self.max_wall_s:
            return "wall_budget"
        # The row of this step is written after it, so its judged items are still among the notes.
        graded = sum(row.judge_calls or 0 for row in self.curve) + self.notes.get("judge_calls", 0)
        spend = self.spend
        return "cost_budget" if spend is not None and spend.cost(self.seconds, graded) >= spend.limit else None

    def _row(self, step: int, logs: dict[str, Any]) -> Curve:
        figures: dict[str, Any] = {
            "loss": _finite(logs["loss"]),
            "entropy": _finite(logs.get("entropy")),
            "kl": _finite(logs.get("kl")),
            "lr": _finite(logs.get("learning_rate")),
            "grad_norm": _finite(logs.get("grad_norm")),
            "validation_acceptance": self._validation,
            **self.notes,
        }
        logged = {key.removeprefix("rewards/"): logs[key] for key in LOGGED if key in logs}
        figures["metrics"] = {**self.notes.get("metrics", {}), **logged}
        self.notes, self._validation = {}, None
        return Curve(step=step, seconds=round(self.seconds, 3), **figures)

    def _refuse_divergence(self, row: Curve) -> None:
        recent = [abs(entry.loss) for entry in self.curve[-WINDOW:] if entry.loss is not None]
        # The first loss is the only one that no update has touched. It is near 0 in GRPO, where advantages cancel.
        limit = max(1.0, self.settings.divergence_factor * abs(self.curve[0].loss or 0.0))
        if row.loss is None:
            seen: object = "not finite"
        elif len(self.curve) > WINDOW and sum(recent) / len(recent) > limit:
            seen = round(sum(recent) / len(recent), 4)
        else:
            return
        raise TrainingError(
            f"{self.name}: the mean loss of {WINDOW} steps at step {row.step}",
            seen=seen,
            rule=f"it must stay finite and under {limit:.4g} ({self._history()})",
            remedy="lower lr, add warmup_steps, or look at the data of these steps",
        )

    def _history(self) -> str:
        losses = ", ".join("nan" if row.loss is None else f"{row.loss:.4g}" for row in self.curve[-WINDOW:])
        norms = ", ".join("nan" if row.grad_norm is None else f"{row.grad_norm:.3g}" for row in self.curve[-WINDOW:])
        return f"last losses [{losses}], gradient norms [{norms}], lr {self.settings.lr:g}"

    def _keep_best(self, model: Any, step: int) -> None:
        value: float | None = None
        outcomes: Mapping[str, bool] | None = None
        if self.validate is not None:
            with evaluating(model):
                found = self.validate(model)
            value, outcomes = found if isinstance(found, Validation) else (float(found), None)
            self._validation = value
        if value is not None and self.best is not None and value <= self.best:
            return
        self.best, self.best_step, self.outcomes = value, step, outcomes
        fresh, kept = self.output / "best.new", self.output / "best"
        shutil.rmtree(fresh, ignore_errors=True)
        model.save_pretrained(fresh)
        self.tokenizer.save_pretrained(fresh)
        record = {"step": step, "validation": value, "outcomes": outcomes}
        (fresh / "step.json").write_text(json.dumps(record), encoding="utf-8")
        # A kill between the two lines leaves no `best`, and the resumed run makes it anew at the same step.
        shutil.rmtree(kept, ignore_errors=True)
        fresh.rename(kept)


def together() -> None:
    """Wait for the other processes that train together, if there are any."""
    if processes() > 1:
        _state().wait_for_everyone()


def agreed(value: Any) -> Any:
    """The first process's value, in all that train together: clocks differ, and all must stop at one step."""
    if processes() == 1:
        return value
    from accelerate.utils import broadcast_object_list

    _state()
    return broadcast_object_list([value])[0]


def _state() -> Any:
    from accelerate import PartialState

    return PartialState(cpu=compute().device == "cpu", timeout=timedelta(seconds=WAIT_S))


@contextmanager
def evaluating(model: Any, seed: int | None = None) -> Iterator[None]:
    """Evaluation mode without gradients; the random states of training are untouched by what runs inside.

    Args:
        model: a torch module.
        seed: seeds the global random states inside, so that what runs there depends on nothing before it.
    """
    was_training, python, state = model.training, random.getstate(), np.random.get_state()
    model.eval()
    try:
        with torch.random.fork_rng(), torch.no_grad():
            if seed is not None:
                torch.manual_seed(seed)
                random.seed(seed)
                np.random.seed(seed % 2**32)
            yield
    finally:
        model.train(was_training)
        random.setstate(python)
        np.random.set_state(state)


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
