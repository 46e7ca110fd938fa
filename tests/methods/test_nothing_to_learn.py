"""A method that finds nothing to learn from says so by an error of its own, which costs its candidate and no run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.errors import NothingToLearn
from ratchet.methods import dpo, grpo, orpo, rloo, sft
from ratchet.methods.base import RolloutSample

STEPS = {"steps": 2, "prompts_per_step": 2, "group_size": 2, "track_kl": False}


@pytest.mark.parametrize(("method", "lacks"), [(sft, "no demonstration"), (dpo, "no pair"), (orpo, "no pair")])
def test_without_data_nothing_is_loaded(method: Any, lacks: str, tmp_path: Path) -> None:
    with pytest.raises(NothingToLearn, match=f"data of mine is '{lacks}': .*; name agents|; sample more") as refused:
        method.fit(None, None, [], method.Settings(), seed=1, output=tmp_path / "run", name="mine")
    assert refused.value.remedy
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", [grpo, rloo])
def test_groups_without_any_difference_teach_nothing(
    method: Any, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """Nor does an invalid episode make a difference."""
    rewards = [0.5, 0.5, 0.25, None]

    def sampler(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        return [RolloutSample([2], [7], [1], [-1.0], reward, {}) for reward in rewards]

    with pytest.raises(NothingToLearn, match=r"data of mine is 'no advantage in 2 steps'.*raise group_size"):
        method.fit(
            new_model(), tokenizer, ["a", "b"], sampler, method.Settings(**STEPS), seed=1, output=tmp_path, name="mine"
        )


def test_one_difference_in_one_step_is_enough(new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path) -> None:
    def sampler(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        rewards = [1.0, 0.0, 0.5, 0.5] if step == 0 else [0.5] * 4
        return [RolloutSample([2], [7], [1], [-1.0], reward, {}) for reward in rewards]

    outcome = grpo.fit(new_model(), tokenizer, ["a", "b"], sampler, grpo.Settings(**STEPS), seed=1, output=tmp_path)
    assert [row.metrics["rows_with_advantage"] for row in outcome.curve] == [2, 0]
