"""Step rewards: every token has the advantage of its own turn, nothing else does, and weight 0 changes no bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.errors import TrainingError
from ratchet.methods import grpo
from ratchet.methods.base import RolloutSample, Sampler, StepRewards

TASKS = [str(index) for index in range(10)]
QUICK = grpo.Settings(steps=1, prompts_per_step=2, group_size=2, lr=5e-3, validate_every=1, track_kl=False)
W = 0.5


def episode(reward: float | None, values: list[float], *, weight: float = W, size: int = 2) -> RolloutSample:
    """Turns of `size` sampled tokens, each followed by one token that was read."""
    ids, mask, turns = [], [], []
    for turn in range(len(values)):
        ids += [7 + turn + index for index in range(size)] + [9]
        mask += [1] * size + [0]
        turns += [turn] * size + [-1]
    logprobs = [-3.0 * bit for bit in mask]
    return RolloutSample([2, 3], ids, mask, logprobs, reward, {}, StepRewards(values, turns, weight))


def fixed(episodes: list[RolloutSample]) -> Sampler:
    return lambda model, task_ids, step: episodes


ROWS = [
    episode(1.0, [1.0, 0.0, 1.0]),
    episode(0.0, [0.0, 0.5]),
    episode(0.5, [1.0]),
    episode(0.5, [0.0, 0.0, 0.0, 1.0], size=1),
]
# By hand: the means of the step rewards of the two groups are 2.5 / 5 and 2 / 5.
WANTED = [
    [0.5 + W * (0.5 - 0.5 + 0.5), 0.5 + W * (-0.5 + 0.5), 0.5 + W * 0.5],
    [-0.5 + W * (-0.5 + 0.0), -0.5 + W * 0.0],
    [W * 0.6],
    [W * (-0.4 * 3 + 0.6), W * (-0.4 * 2 + 0.6), W * (-0.4 + 0.6), W * 0.6],
]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What TRL's loss is given."""
    from ratchet.methods.grpo_trainer import EpisodeGRPOTrainer

    seen: list[dict[str, Any]] = []
    loss = EpisodeGRPOTrainer._compute_loss

    def spy(self: Any, model: Any, inputs: dict[str, Any]) -> Any:
        seen.append(inputs)
        return loss(self, model, inputs)

    monkeypatch.setattr(EpisodeGRPOTrainer, "_compute_loss", spy)
    return seen


def test_each_token_has_the_advantage_of_its_turn_and_read_tokens_have_none(
    batches: list[dict[str, Any]], new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    grpo.fit(new_model(), tokenizer, TASKS, fixed(ROWS), QUICK, seed=1, output=tmp_path)
    (batch,) = batches
    assert batch["advantages"].shape == batch["completion_ids"].shape
    # TRL shuffles rows between advantage and loss: a row is known by its tokens.
    found = {
        tuple(ids[mask.bool()].tolist()): advantages
        for ids, mask, advantages in zip(
            batch["completion_ids"], batch["completion_mask"], batch["advantages"], strict=True
        )
    }
    for row, wanted in zip(ROWS, WANTED, strict=True):
        assert row.steps is not None
        expected = [0.0 if turn < 0 else wanted[turn] for turn in row.steps.turns]
        advantages = found[tuple(row.completion_ids)].tolist()
        assert advantages[: len(expected)] == pytest.approx(expected, abs=1e-6)
        assert not any(advantages[len(expected) :])


def by_hand(model: Any) -> tuple[float, float]:
    """Loss and gradient norm of the policy gradient with `WANTED`, with nothing of TRL in it."""
    import torch

    total, tokens = torch.zeros(()), 0
    for row, wanted in zip(ROWS, WANTED, strict=True):
        assert row.steps is not None
        ids = torch.tensor([row.prompt_ids + row.completion_ids])
        logps = model(input_ids=ids).logits.log_softmax(-1)
        for offset, turn in enumerate(row.steps.turns):
            if turn >= 0:
                position = len(row.prompt_ids) + offset
                value = logps[0, position - 1, ids[0, position]]
                total = total - wanted[turn] * (value - value.detach()).exp()
                tokens += 1
    loss = total / tokens
    loss.backward()
    squares = [weight.grad.pow(2).sum() for weight in model.parameters() if weight.grad is not None]
    return loss.item(), torch.stack(squares).sum().sqrt().item()


@pytest.mark.parametrize("micro", [None, 1])
def test_loss_and_gradient_are_those_of_the_per_token_advantages(
    micro: int | None, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    settings = QUICK.model_copy(update={"micro_batch": micro})
    outcome = grpo.fit(new_model(), tokenizer, TASKS, fixed(ROWS), settings, seed=1, output=tmp_path)
    loss, norm = by_hand(new_model())
    assert outcome.curve[0].grad_norm == pytest.approx(norm, rel=1e-4)
    assert outcome.curve[0].loss == pytest.approx(loss, abs=1e-6)
    assert outcome.curve[0].metrics["rows_with_advantage"] == 4


@pytest.mark.parametrize("iterations", [1, 2])
def test_weight_zero_trains_bit_for_bit_as_without_step_rewards(
    iterations: int, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    results, curves = [], []
    for number, rows in enumerate(
        (
            [row._replace(steps=None) for row in ROWS],
            [row._replace(steps=row.steps._replace(weight=0.0)) for row in ROWS if row.steps],
        )
    ):
        model, settings = new_model(), QUICK.model_copy(update={"steps": 3, "iterations": iterations})
        outcome = grpo.fit(model, tokenizer, TASKS, fixed(rows), settings, seed=1, output=tmp_path / str(number))
        results.append({name: value.detach().clone() for name, value in model.state_dict().items()})
        curves.append([row.model_dump(exclude={"seconds"}) for row in outcome.curve])
    assert all(bool((results[0][name] == results[1][name]).all()) for name in results[0])
    assert curves[0] == curves[1]


def test_steps_teach_where_all_outcomes_of_a_group_are_equal(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """And a group whose steps are all worth the same, too, teaches nothing."""
    rows = [*ROWS[2:], episode(0.5, [0.5, 0.5]), episode(0.5, [0.5])]
    outcome = grpo.fit(new_model(), tokenizer, TASKS, fixed(rows), QUICK, seed=1, output=tmp_path)
    assert outcome.curve[0].metrics["rows_with_advantage"] == 2
    assert outcome.curve[0].grad_norm


def test_an_invalid_episode_enters_no_mean_of_steps() -> None:
    from ratchet.methods.grpo_steps import step_advantages

    junk = episode(None, [1.0, 1.0, 1.0])
    added = step_advantages([ROWS[0], junk, ROWS[1]], group=3, scale="none", width=12)
    alone = step_advantages([ROWS[0], ROWS[1]], group=2, scale="none", width=12)
    assert added is not None
    assert alone is not None
    assert added[[0, 2]].tolist() == alone.tolist()
    assert not added[1].any()


def test_step_rewards_are_divided_by_the_deviation_that_rewards_are() -> None:
    from ratchet.methods.grpo_steps import step_advantages

    def first(scale: str) -> float:
        added = step_advantages(ROWS, group=2, scale=scale, width=12)
        assert added is not None
        return float(added[2, 0])

    def deviation(values: list[float]) -> float:
        mean = sum(values) / len(values)
        return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1)) + 1e-4

    group, batch = [1.0, 0, 0, 0, 1.0], [1.0, 0, 1.0, 0, 0.5, 1.0, 0, 0, 0, 1.0]
    assert first("none") == pytest.approx(W * 0.6)
    assert first("group") == pytest.approx(W * 0.6 / deviation(group))
    assert first("batch") == pytest.approx(W * 0.6 / deviation(batch))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (StepRewards([1.0], [0, 0], W), "one for each of 3"),
        (StepRewards([1.5], [0, 0, -1], W), r"in \[0, 1\]"),
        (StepRewards([math.nan], [0, 0, -1], W), r"in \[0, 1\]"),
        (StepRewards([1.0], [0, 1, -1], W), "a turn that has a reward"),
        (StepRewards([1.0], [0, 0, 0], W), "no other token is of any"),
        (StepRewards([1.0], [0, -1, -1], W), "a turn that has a reward"),
        (StepRewards([1.0], [0, 0, -1], math.inf), "finite"),
    ],
)
def test_step_rewards_that_do_not_fit_are_refused_by_name(steps: StepRewards, message: str) -> None:
    from ratchet.methods.grpo_steps import checked_steps

    with pytest.raises(TrainingError, match=message):
        checked_steps("episode 0", episode(1.0, [1.0])._replace(steps=steps))
