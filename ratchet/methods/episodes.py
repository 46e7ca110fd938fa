"""What every trainer on finished episodes shares: the sampler's promise kept, the figures of a step, rows that teach.

`Episodes` goes in front of a TRL trainer that learns from sampled groups (GRPO, RLOO). TRL samples nothing then: whole
episodes (token ids, masks, log-probs, one composite reward) come from our sampler. An invalid episode leaves the batch
after the advantages are known, so that it enters no normaliser, KL or entropy; a row whose advantage is 0 adds nothing
to the loss and leaves it too where that is asked for, and the loss is the mean over the rows that are left.

Imports torch: load it inside `fit`.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from typing import Any

import torch

from ratchet.errors import ManifestError, TrainingError
from ratchet.methods.base import RolloutSample, Sampler, check_masks
from ratchet.methods.callbacks import Watch, evaluating
from ratchet.methods.grpo_steps import checked_steps


class Episodes:
    """Mixin in front of a TRL trainer: its rollouts are a sampler's finished episodes."""

    steps_refused: str | None = None
    """Why step rewards cannot be used, or None where they can."""
    model: Any
    state: Any
    num_iterations: Any
    accelerator: Any
    _tokenizer: Any
    _get_per_token_logps_and_entropies: Any

    def learn_from(self, sampler: Sampler, watch: Watch, seed: int, *, skip_flat: bool) -> None:
        """Take what episodes come from; before TRL's own initialisation.

        Args:
            sampler: task ids to finished episodes, in the same order.
            watch: receives the figures of every step.
            seed: with the step, seeds the random states that the sampler finds.
            skip_flat: leave rows without advantage out of the batch.
        """
        self._sampler, self._watch, self._seed, self._skip_flat = sampler, watch, seed, skip_flat
        self._empty = False
        self._episodes: list[RolloutSample] = []

    def compare_with_start(self, args: Any, *, track_kl: bool) -> None:
        """Keep the starting policy where its KL is to be measured; after TRL's own initialisation.

        Args:
            args: TRL's configuration.
            track_kl: measure the KL to the starting policy at validation steps.
        """
        # An adapter is switched off to get the starting policy; full weights need a copy of it.
        adapted = hasattr(self.model, "disable_adapter")
        self._start = copy.deepcopy(self.model).eval() if track_kl and not adapted else None
        self._split = args.steps_per_generation > 1
        self._track_kl = track_kl

    def _draw(self, task_ids: list[str]) -> list[RolloutSample]:
        """Ask the sampler for the episodes of a step, check them, and note their figures."""
        step = self.state.global_step // self.num_iterations
        with evaluating(self.model, seed=self._seed * 1_000_003 + step):
            samples = self._sampler(self.model, list(task_ids), step)
        if len(samples) != len(task_ids):
            raise TrainingError(
                "sampler", seen=len(samples), rule=f"one episode for each of {len(task_ids)}", remedy="correct it"
            )
        self._episodes = [self._checked(index, sample) for index, sample in enumerate(samples)]
        self._note(self._episodes)
        return self._episodes

    def _checked(self, index: int, sample: RolloutSample) -> RolloutSample:
        if sample.reward is None:
            # An invalid episode may hold anything or nothing; it only has to keep its place in the group.
            pad = int(self._tokenizer.pad_token_id)
            return RolloutSample([pad], [pad], [0], [0.0], None, {}, None, sample.invalid, sample.judge_calls)
        where = f"episode {index} of the step"
        check_masks(where, sample.completion_ids, sample.sampled_mask)
        if not sample.prompt_ids:
            raise TrainingError(f"{where}: prompt", rule="at least one token", remedy="correct the sampler")
        if not math.isfinite(sample.reward):
            raise TrainingError(
                f"{where}: reward", seen=sample.reward, rule="finite, or None if invalid", remedy="correct the reward"
            )
        if sample.logprobs is not None and len(sample.logprobs) != len(sample.completion_ids):
            raise TrainingError(
                f"{where}: number of log-probs",
                seen=len(sample.logprobs),
                rule=f"one for each of {len(sample.completion_ids)} tokens (0 where not sampled)",
                remedy="correct the sampler",
            )
        checked_steps(where, sample)
        if self.steps_refused is not None and sample.steps is not None and sample.steps.weight > 0:
            raise ManifestError(
                "reward: weight of step rewards",
                seen=sample.steps.weight,
                rule=f"it must be 0 with {self._watch.name}: {self.steps_refused}",
                remedy="train with grpo and a ratio per token, or give the step verifiers no weight",
            )
        return sample

    def _note(self, samples: list[RolloutSample]) -> None:
        valid = [sample for sample in samples if sample.reward is not None]
        scored = all(sample.logprobs is not None for sample in samples)
        reasons = Counter(sample.invalid or "no reason given" for sample in samples if sample.reward is None)
        figures: dict[str, Any] = {"invalid_share": 1 - len(valid) / len(samples), "invalid": dict(reasons)}
        asked = sum(sample.judge_calls for sample in samples)
        if asked:
            # A step may draw more than once.
            figures["judge_calls"] = asked + self._watch.notes.get("judge_calls", 0)
        if valid:
            figures["reward"] = sum(sample.reward or 0.0 for sample in valid) / len(valid)
            figures["length"] = sum(sum(sample.sampled_mask) for sample in valid) / len(valid)
            names = sorted({key for sample in valid for key in sample.metrics})
            columns = {key: [sample.metrics[key] for sample in valid if key in sample.metrics] for key in names}
            figures["metrics"] = {key: sum(values) / len(values) for key, values in columns.items()}
        if valid and scored:
            # Mean of -log p over tokens drawn from p: an unbiased estimate of the entropy, over all valid rows.
            drawn = [
                value
                for sample in valid
                for value, bit in zip(sample.logprobs or [], sample.sampled_mask, strict=True)
                if bit
            ]
            figures["entropy"] = -sum(drawn) / len(drawn)
        self._watch.note(**figures)

    def _keep(self, batch: dict[str, Any], mask: torch.Tensor) -> dict[str, Any]:
        """Leave the rows that teach nothing out of the batch; measure the KL before, where it is due.

        Args:
            batch: TRL's tensors, with `tool_mask` and `advantages`.
            mask: 1 where the policy sampled the token; shape (rows, tokens).
        """
        after = self.state.global_step + self.num_iterations
        if self._track_kl and (after % self._watch.every == 0 or after >= self.state.max_steps):
            self._watch.note(kl=self._kl(batch, mask))
        keep = mask.sum(dim=1) > 0
        if self._skip_flat:
            keep &= taught(batch["advantages"])
        self._empty = not bool(keep.any())
        # In micro-batches of equal sizes the masked rows are counted by losses that average over rows.
        self._row_share = keep.numel() / max(1, int(keep.sum()))
        if self._split:
            batch["tool_mask"] = batch["tool_mask"] * keep[:, None]
        else:
            batch = select(batch, keep)
        self._watch.note(metrics={"rows_with_advantage": float(taught(batch["advantages"]).sum())})
        return batch

    def _kl(self, batch: dict[str, Any], mask: torch.Tensor) -> float:
        """KL of the policy to the starting policy in nats per sampled token, over the valid episodes of the step.

        The estimator exp(d) - d - 1, d = log start - log policy, is unbiased and never negative (Schulman, 2020,
        joschu.net/blog/kl-approx.html).
        """
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        kept = batch["completion_ids"].size(1)
        with torch.no_grad():
            if self._start is None:
                with self.accelerator.unwrap_model(self.model).disable_adapter():
                    start, _, _ = self._get_per_token_logps_and_entropies(self.model, ids, attention, kept)
            else:
                start, _, _ = self._get_per_token_logps_and_entropies(self._start, ids, attention, kept)
            policy = batch.get("sampling_per_token_logps")
            if policy is None:
                policy, _, _ = self._get_per_token_logps_and_entropies(self.model, ids, attention, kept)
        distance = start - policy
        return float(((distance.exp() - distance - 1) * mask).sum() / mask.sum().clamp(min=1))

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """One update; a step in which no row teaches moves no weight, not even by momentum."""
        loss = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        if self._empty:
            model.zero_grad(set_to_none=True)
            return torch.zeros_like(loss)
        return loss


def taught(advantages: torch.Tensor) -> torch.Tensor:
    """Which rows have an advantage, of the row or of any token in it; shape (rows,)."""
    return advantages != 0 if advantages.ndim == 1 else (advantages != 0).any(dim=1)


def select(batch: dict[str, Any], keep: torch.Tensor) -> dict[str, Any]:
    """Select rows (at least one, masked, so that shapes stay) and cut padding that no row needs any more."""
    size = keep.shape[0]
    empty = not bool(keep.any())
    if empty:
        keep = torch.arange(size, device=keep.device) == 0
    chosen = {
        key: value[keep] if isinstance(value, torch.Tensor) and value.ndim and value.shape[0] == size else value
        for key, value in batch.items()
    }
    if empty:
        chosen["tool_mask"] = torch.zeros_like(chosen["tool_mask"])
    left = int((chosen["prompt_mask"].sum(dim=0) > 0).long().argmax())
    right = int(chosen["completion_mask"].sum(dim=1).max())
    for key in ("prompt_ids", "prompt_mask"):
        chosen[key] = chosen[key][:, left:]
    for key, value in chosen.items():
        if isinstance(value, torch.Tensor) and value.ndim == 2 and not key.startswith("prompt"):
            chosen[key] = value[:, :right]
    return chosen
