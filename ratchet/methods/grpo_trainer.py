"""TRL's GRPOTrainer over finished episodes: rollouts come from outside, and only rows that teach reach the loss.

TRL's `rollout_func` asks our sampler for whole episodes, `env_mask` keeps tokens that the policy did not sample out of
the loss, and the one reward function hands over the composite. Beside what `Episodes` adds, where episodes have step
rewards, advantages are per token: the row's own plus what its steps add (see `grpo_steps`); without any, or with weight
0, they stay per row, and training is what it was bit for bit.

Imports torch and trl: load it inside `fit`.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from ratchet.errors import TrainingError
from ratchet.methods.base import Sampler
from ratchet.methods.callbacks import Watch
from ratchet.methods.episodes import Episodes
from ratchet.methods.fitting import Quiet
from ratchet.methods.grpo_steps import step_advantages

ROW_MEAN_LOSSES = ("grpo", "dr_grpo")
"""Losses whose normaliser counts rows, those too that are masked."""


class EpisodeGRPOTrainer(Quiet, Episodes, GRPOTrainer):
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
        """See GRPOTrainer and Episodes for the rest.

        Args:
            sampler: task ids to finished episodes, in the same order.
            watch: receives the figures of every step.
            seed: with the step, seeds the random states that the sampler finds.
            skip_flat: leave rows without advantage out of the batch.
            use_sampler_logprobs: importance ratios against the sampler's log-probs instead of the trainer's own.
            track_kl: measure the KL to the starting policy at validation steps.
        """
        self.learn_from(sampler, watch, seed, skip_flat=skip_flat)
        self._use_sampler_logprobs = use_sampler_logprobs
        super().__init__(reward_funcs=[composite], rollout_func=self._rollout, **kwargs)
        self.compare_with_start(kwargs["args"], track_kl=track_kl)
        if self.importance_sampling_level == "sequence":
            self.steps_refused = "one ratio for the whole episode would spread a step's reward over all its tokens"

    def _rollout(self, task_ids: list[str], _: GRPOTrainer) -> dict[str, Any]:
        samples = self._draw(task_ids)
        scored = all(sample.logprobs is not None for sample in samples)
        if self._use_sampler_logprobs and not scored:
            raise TrainingError(
                "sampler", rule="log-probs for every sampled token", remedy="return them, or set ratio: trainer"
            )
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
        batch = self._keep(batch, mask)
        kept = batch["completion_mask"] * batch["tool_mask"]
        batch["num_items_in_batch"] = self.accelerator.gather(kept.sum()).sum()
        return batch

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's loss; the LM head scores sampled tokens only, since TRL masks the others after it."""
        unsampled = inputs["tool_mask"] == 0

        def sampled_only(*, labels: torch.Tensor, **kwargs: Any) -> Any:
            labels = labels.clone()
            labels[:, -unsampled.size(1) :].masked_fill_(unsampled, -100)
            return model(labels=labels, **kwargs)

        loss = cast(torch.Tensor, super()._compute_loss(sampled_only, inputs))
        return loss * self._row_share if self._split and self.loss_type in ROW_MEAN_LOSSES else loss


def composite(composite: list[float | None], **_: Any) -> list[float | None]:
    """Reward function for TRL: the rollout's composite reward, None where the episode is invalid."""
    return composite
