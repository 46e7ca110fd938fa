"""TRL's RLOOTrainer over finished episodes.

TRL's trainer knows no tools: it sums log-probs over the whole completion and has no hook for rollouts. So `_generate`
hands over our episodes, `_calculate_rewards` their composite, and every log-prob that TRL asks for is 0 on tokens that
the policy did not sample: policy, old policy and reference alike. The attention mask stays whole: tool results are
read, and carry no loss.

Imports torch and trl: load it inside `fit`.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from trl.trainer.rloo_trainer import RLOOTrainer

from ratchet.methods.base import Sampler
from ratchet.methods.callbacks import Watch
from ratchet.methods.episodes import Episodes
from ratchet.methods.fitting import Quiet


class EpisodeRLOOTrainer(Quiet, Episodes, RLOOTrainer):
    """RLOO over episodes that a sampler returns."""

    steps_refused = "an episode is one action, with one advantage"

    def __init__(
        self, *, sampler: Sampler, watch: Watch, seed: int, skip_flat: bool, track_kl: bool, **kwargs: Any
    ) -> None:
        """See RLOOTrainer and Episodes for the rest.

        Args:
            sampler: task ids to finished episodes, in the same order.
            watch: receives the figures of every step.
            seed: with the step, seeds the random states that the sampler finds.
            skip_flat: leave rows without advantage out of the batch.
            track_kl: measure the KL to the starting policy at validation steps.
        """
        self.learn_from(sampler, watch, seed, skip_flat=skip_flat)
        super().__init__(reward_funcs=[unused], **kwargs)
        self.compare_with_start(kwargs["args"], track_kl=track_kl)

    def _generate(self, prompts: list[str]) -> tuple[list[list[int]], list[list[int]], list[str]]:
        """The episodes of the tasks that stand in the place of prompts."""
        samples = self._draw(prompts)
        width = max(len(sample.completion_ids) for sample in samples)
        rows = [[int(bit) for bit in sample.sampled_mask] for sample in samples]
        self._sampled = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=self.accelerator.device)
        return [one.prompt_ids for one in samples], [one.completion_ids for one in samples], [""] * len(samples)

    def _calculate_rewards(self, *_: Any) -> torch.Tensor:
        """One composite reward per episode, NaN where it is invalid; shape (episodes, 1)."""
        rewards = [math.nan if one.reward is None else one.reward for one in self._episodes]
        return cast(
            torch.Tensor, self.accelerator.gather(torch.tensor(rewards, device=self.accelerator.device).unsqueeze(1))
        )

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any, Any]:
        logps, entropies, aux = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        return logps * self._sampled, entropies, aux

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._generate_and_score_completions(inputs)
        batch["tool_mask"] = self._sampled
        return self._keep(batch, batch["completion_mask"] * self._sampled)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's loss over the sampled tokens of the rows that are kept; the LM head scores no others."""
        self._sampled = inputs["tool_mask"]
        unsampled = self._sampled == 0

        def sampled_only(*, labels: torch.Tensor, **kwargs: Any) -> Any:
            labels = labels.clone()
            labels[:, -unsampled.size(1) :].masked_fill_(unsampled, -100)
            return model(labels=labels, **kwargs)

        # A row that is left out has no sampled token: its ratio is then not 1 but exp(-old), which may overflow.
        inputs = {**inputs, "old_logps": inputs["old_logps"] * self._sampled.any(dim=1)}
        inputs["advantages"] = inputs["advantages"] * self._sampled.any(dim=1)
        loss = cast(torch.Tensor, super()._compute_loss(sampled_only, inputs))
        return loss * self._row_share if self._split else loss


def unused(**_: Any) -> list[float | None]:
    """TRL wants a reward function; the composite reaches it another way."""
    return []
