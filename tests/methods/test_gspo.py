from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.errors import ManifestError
from ratchet.methods import gspo
from ratchet.methods.base import RolloutSample, Sampler, StepRewards, method, parse

TASKS = [str(index) for index in range(10)]


def scored(model: Any, prompt: list[int], ids: list[int], mask: list[int], shift: float) -> list[float]:
    """The model's log-probs of the sampled tokens, shifted: as if a sampler had drawn them from another policy."""
    import torch

    logps = model(input_ids=torch.tensor([prompt + ids])).logits[0].log_softmax(-1)
    at = len(prompt)
    return [
        logps[at + offset - 1, token].item() + shift if bit else 0.0
        for offset, (token, bit) in enumerate(zip(ids, mask, strict=True))
    ]


def test_the_ratio_is_one_per_episode_over_sampled_tokens_by_length_and_is_clipped(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    shapes = [
        ([7, 9, 8], [1, 0, 1], 1.0, 0.001),
        ([8, 9, 10, 11], [1, 0, 0, 1], 0.0, -0.2),
        ([12, 9], [1, 0], 0.5, 0.3),
        ([13], [1], 0.0, 0.0),
    ]
    model = new_model().eval()
    rows = [
        RolloutSample([2, 3], ids, mask, scored(model, [2, 3], ids, mask, shift), reward, {})
        for ids, mask, reward, shift in shapes
    ]
    settings = gspo.Settings(
        steps=1, prompts_per_step=1, group_size=4, iterations=1, ratio="sampler", clip_low=0.05, clip_high=0.1
    )
    outcome = gspo.fit(
        new_model(), tokenizer, TASKS, lambda model, tasks, step: rows, settings, seed=1, output=tmp_path
    )
    mean = sum(reward for *_, reward, _ in shapes) / 4
    expected = 0.0
    for *_, reward, shift in shapes:
        # A shift of every log-prob by s is a length-normalised sequence ratio of exp(-s), whatever the length.
        ratio, advantage = math.exp(-shift), reward - mean
        expected += -min(ratio * advantage, min(max(ratio, 0.95), 1.1) * advantage) / 4
    assert outcome.curve[0].loss == pytest.approx(expected, abs=1e-4)


def test_it_learns(new_model: Callable[..., Any], tokenizer: Any, sampler: Sampler, tmp_path: Path) -> None:
    settings = gspo.Settings(steps=12, prompts_per_step=4, group_size=8, lr=1e-2, iterations=1)
    outcome = gspo.fit(new_model(), tokenizer, TASKS, sampler, settings, seed=1, output=tmp_path)
    rewards = [row.reward for row in outcome.curve if row.reward is not None]
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.1


def test_a_ratio_per_token_is_not_gspo() -> None:
    with pytest.raises(ManifestError, match="ratio_level"):
        parse(method("gspo").Settings, {"ratio_level": "token"}, "methods.gspo.settings")


def test_step_rewards_are_refused_by_name(new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path) -> None:
    row = RolloutSample([2, 3], [7], [1], None, 1.0, {}, StepRewards([0.5], [0], 1.0))
    settings = gspo.Settings(steps=1, prompts_per_step=2, group_size=4)
    with pytest.raises(ManifestError, match="one ratio for the whole episode"):
        gspo.fit(new_model(), tokenizer, TASKS, lambda *_: [row] * 8, settings, seed=1, output=tmp_path)
