"""TRL's GRPOTrainer over finished episodes: rollouts come from outside, and only rows that teach reach the loss.

TRL samples nothing here: its `rollout_func` asks our sampler for whole episodes (token ids, masks, log-probs, one
composite reward), `env_mask` keeps tokens that the policy did not sample out of the loss, and the one reward function
hands over the composite. Three things are added to TRL's own computation of advantages and loss, all in one place,
`_generate_and_score_completions`:

- an invalid episode leaves the batch after the advantages are known (TRL has already left it out of its group's mean
  and deviation), so that it enters no normaliser, KL or entropy;
- where episodes have step rewards, advantages are per token: the row's own plus what its steps add (see `grpo_steps`);
  without any, or with weight 0, they stay per row, and training is what it was bit for bit;
- a row whose advantage is 0 adds nothing to the loss; it leaves the batch too where that is asked for, and the loss is
  the mean over the rows that are left.

Imports torch and trl: load it inside `fit`.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from typing import Any, cast

import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from ratchet.errors import TrainingError
from ratchet.methods.base import RolloutSample, Sampler, check_masks
from ratchet.methods.callbacks import Watch, evaluating
from ratchet.methods.fitting import Quiet
from ratchet.methods.grpo_steps import checked_steps, step_advantages


class EpisodeGRPOTrainer(Quiet, GRPOTrainer):
    """GRPO over episodes that a sampler returns."""

    def __init__(
        self,
        *,
        sampler: Sampler,
        watch: Watch,
        seed: int,
        skip_flat: bool,
        use_sampler_logprobs: bool,
        track_kl: bool,
        **kwargs: Any,
    ) -> None:
        """See GRPOTrainer for the rest.

        Args:
            sampler: task ids to finished episodes, in the same order.
            watch: receives the figures of every step.
            seed: with the step, seeds the random states that the sampler finds.
            skip_flat: leave rows without advantage out of the batch.
            use_sampler_logprobs: importance ratios against the sampler's log-probs instead of the trainer's own.
            track_kl: measure the KL to the starting policy at validation steps.
        """
        self._sampler, self._watch, self._seed = sampler, watch, seed
        self._skip_flat, self._use_sampler_logprobs = skip_flat, use_sampler_logprobs
        self._empty = False
        self._episodes: list[RolloutSample] = []
        super().__init__(reward_funcs=[composite], rollout_func=self._rollout, **kwargs)
        # An adapter is switched off to get the starting policy; full weights need a copy of it.
        policy: Any = self.model
        adapted = hasattr(policy, "disable_adapter")
        self._start = copy.deepcopy(policy).eval() if track_kl and not adapted else None
        self._split = kwargs["args"].steps_per_generation > 1
        self._track_kl = track_kl

    def _rollout(self, task_ids: list[str], _: GRPOTrainer) -> dict[str, Any]:
        step = self.state.global_step // self.num_iterations
        with evaluating(self.model, seed=self._seed * 1_000_003 + step):
            samples = self._sampler(self.model, list(task_ids), step)
        if len(samples) != len(task_ids):
            raise TrainingError(
                "sampler", seen=len(samples), rule=f"one episode for each of {len(task_ids)}", remedy="correct it"
            )
        self._episodes = [self._checked(index, sample) for index, sample in enumerate(samples)]
        return self._columns(self._episodes)

    def _checked(self, index: int, sample: RolloutSample) -> RolloutSample:
        if sample.reward is None:
            # An invalid episode may hold anything or nothing; it only has to keep its place in the group.
            pad = int(self._tokenizer.pad_token_id)
            return RolloutSample([pad], [pad], [0], [0.0], None, {}, invalid=sample.invalid)
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
        return sample

    def _columns(self, samples: list[RolloutSample]) -> dict[str, Any]:
        valid = [sample for sample in samples if sample.reward is not None]
        scored = all(sample.logprobs is not None for sample in samples)
        if self._use_sampler_logprobs and not scored:
            raise TrainingError(
                "sampler", rule="log-probs for every sampled token", remedy="return them, or set ratio: trainer"
            )
        reasons = Counter(sample.invalid or "no reason given" for sample in samples if sample.reward is None)
        figures: dict[str, Any] = {"invalid_share": 1 - len(valid) / len(samples), "invalid": dict(reasons)}
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
        return {
            "prompt_ids": [sample.prompt_ids for sample in samples],
            "completion_ids": [sample.completion_ids for sample in samples],
            "logprobs": [sample.logprobs for sample in samples] if scored else None,
            "env_mask": [[int(bit) for bit in sample.sampled_mask] for sample in samples],
            "composite": [sample.reward for sample in samples],
        }

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self._use_sampler_logprobs:
            batch["old_per_token_logps"] = batch["sampling_per_token_logps"]
        mask = batch["completion_mask"] * batch["tool_mask"]
        added = step_advantages(
            self._episodes, group=cast(int, self.num_generations), scale=self.scale_rewards, width=mask.size(1)
        )
        if added is not None:
            batch["advantages"] = (batch["advantages"][:, None] + added.to(mask.device)) * mask
        after = self.state.global_step + self.num_iterations
        if self._track_kl and (after % self._watch.every == 0 or after >= self.state.max_steps):
            self._watch.note(kl=self._kl(batch, mask))
        keep = mask.sum(dim=1) > 0
        if self._skip_flat:
            keep &= _taught(batch["advantages"])
        if self._split:
            # Micro-batches need equal sizes: the rows stay, and the mask takes them out of the loss.
            batch["tool_mask"] = batch["tool_mask"] * keep[:, None]
        else:
            batch = _rows(batch, keep)
        kept = batch["completion_mask"] * batch["tool_mask"]
        batch["num_items_in_batch"] = self.accelerator.gather(kept.sum()).sum()
        self._empty = not bool(batch["num_items_in_batch"])
        self._watch.note(metrics={"rows_with_advantage": float(_taught(batch["advantages"]).sum())})
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

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's loss; the LM head scores sampled tokens only, since TRL masks the others after it."""
        unsampled = inputs["tool_mask"] == 0

        def sampled_only(*, labels: torch.Tensor, **kwargs: Any) -> Any:
            labels = labels.clone()
            labels[:, -unsampled.size(1) :].masked_fill_(unsampled, -100)
            return model(labels=labels, **kwargs)

        return cast(torch.Tensor, super()._compute_loss(sampled_only, inputs))

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """One update; a step in which no row teaches moves no weight, not even by momentum."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self._empty:
            model.zero_grad(set_to_none=True)
            return torch.zeros_like(loss)
        return loss


def composite(composite: list[float | None], **_: Any) -> list[float | None]:
    """Reward function for TRL: the rollout's composite reward, None where the episode is invalid."""
    return composite


def _taught(advantages: torch.Tensor) -> torch.Tensor:
    """Which rows have an advantage, of the row or of any token in it; shape (rows,)."""
    return advantages != 0 if advantages.ndim == 1 else (advantages != 0).any(dim=1)


def _rows(batch: dict[str, Any], keep: torch.Tensor) -> dict[str, Any]:
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
