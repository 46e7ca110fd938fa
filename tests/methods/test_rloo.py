from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.errors import ManifestError
from ratchet.methods import rloo
from ratchet.methods.base import RolloutSample, Sampler, StepRewards

TASKS = [str(index) for index in range(10)]
QUICK = rloo.Settings(steps=1, prompts_per_step=2, group_size=4)


def episode(ids: list[int], mask: list[int], reward: float | None, *, prompt: tuple[int, ...] = (2, 3)) -> Any:
    return RolloutSample(list(prompt), ids, mask, None, reward, {})


EPISODES = [
    episode([7, 9, 8], [1, 0, 1], 1.0),
    episode([8, 9, 10, 11], [1, 0, 0, 1], 0.0),
    episode([12], [1], 0.25),
    episode([13], [1], None),
    episode([7, 9, 9], [1, 0, 0], 0.5, prompt=(4, 5, 6)),
    episode([14], [1], None),
    episode([15, 9, 9, 9, 9, 9], [1, 0, 0, 0, 0, 0], None),
    episode([16], [1], 0.0),
]


def fixed(episodes: list[RolloutSample]) -> Sampler:
    return lambda model, task_ids, step: episodes


def by_hand(model: Any, rows: list[RolloutSample], group: int) -> tuple[float, float]:
    """REINFORCE with a leave-one-out baseline over valid episodes: loss and gradient norm, with nothing of TRL."""
    import torch

    losses = []
    for start in range(0, len(rows), group):
        valid = [row for row in rows[start : start + group] if row.reward is not None]
        total = sum(row.reward or 0.0 for row in valid)
        for row in valid:
            reward = row.reward or 0.0
            advantage = reward - (total - reward) / (len(valid) - 1)
            ids = torch.tensor([row.prompt_ids + row.completion_ids])
            logps = model(input_ids=ids).logits[0].log_softmax(-1)
            at = len(row.prompt_ids)
            logp = sum(
                logps[at + offset - 1, token]
                for offset, (token, bit) in enumerate(zip(row.completion_ids, row.sampled_mask, strict=True))
                if bit
            )
            losses.append(-advantage * (logp - logp.detach()).exp())
    loss = torch.stack(losses).mean()
    loss.backward()
    squares = [weight.grad.pow(2).sum() for weight in model.parameters() if weight.grad is not None]
    return loss.item(), torch.stack(squares).sum().sqrt().item()


@pytest.mark.parametrize("micro", [None, 2])
def test_loss_and_gradient_are_those_of_the_sampled_tokens_of_valid_episodes(
    micro: int | None, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    settings = QUICK.model_copy(update={"micro_batch": micro})
    outcome = rloo.fit(new_model(), tokenizer, TASKS, fixed(EPISODES), settings, seed=1, output=tmp_path)
    loss, norm = by_hand(new_model(), EPISODES, 4)
    assert outcome.curve[0].loss == pytest.approx(loss, abs=1e-5)
    assert outcome.curve[0].grad_norm == pytest.approx(norm, rel=1e-4)
    assert outcome.curve[0].invalid_share == 3 / 8


def test_an_invalid_episode_changes_no_weight_whatever_it_holds(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    results = []
    for number, junk in enumerate(
        [RolloutSample([], [], [], None, None, {}), RolloutSample([31] * 40, [30] * 20, [1] * 20, None, None, {})]
    ):
        model = new_model()
        rows = [junk if row.reward is None else row for row in EPISODES]
        settings = QUICK.model_copy(update={"steps": 2, "iterations": 2, "lr": 1e-2})
        rloo.fit(model, tokenizer, TASKS, fixed(rows), settings, seed=1, output=tmp_path / str(number))
        results.append(model.state_dict()["model.embed_tokens.weight"].clone())
    assert (results[0] == results[1]).all()


def test_the_kl_to_the_start_is_taken_off_the_reward_over_sampled_tokens_alone(
    new_model: Callable[..., Any], tokenizer: Any, sampler: Sampler, tmp_path: Path
) -> None:
    settings = rloo.Settings(steps=3, prompts_per_step=2, group_size=8, lr=2e-2, beta=0.1)
    outcome = rloo.fit(new_model(), tokenizer, TASKS, sampler, settings, seed=1, output=tmp_path)
    assert outcome.curve[0].kl == pytest.approx(0, abs=1e-6)
    assert outcome.curve[2].kl is not None
    assert abs(outcome.curve[2].kl) > 1e-5


def test_the_reward_rises(
    new_model: Callable[..., Any],
    tokenizer: Any,
    sampler: Sampler,
    likes_target: Callable[[Any], float],
    tmp_path: Path,
) -> None:
    settings = rloo.Settings(steps=15, prompts_per_step=4, group_size=8, lr=1e-2)
    outcome = rloo.fit(new_model(), tokenizer, TASKS, sampler, settings, seed=1, output=tmp_path, validate=likes_target)
    rewards = [row.reward for row in outcome.curve if row.reward is not None]
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.15
    assert outcome.curve[-1].kl is not None


def test_step_rewards_are_refused_by_name(new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path) -> None:
    rows = [row._replace(steps=StepRewards([0.5], [0], 1.0)) for row in [episode([7], [1], 1.0)] * 8]
    with pytest.raises(ManifestError, match="with reward-run: an episode is one action"):
        rloo.fit(new_model(), tokenizer, TASKS, fixed(rows), QUICK, seed=1, output=tmp_path, name="reward-run")
    weightless = [row._replace(steps=StepRewards([0.5], [0], 0.0), reward=float(at % 2)) for at, row in enumerate(rows)]
    rloo.fit(new_model(), tokenizer, TASKS, fixed(weightless), QUICK, seed=1, output=tmp_path)
