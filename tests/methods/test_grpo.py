from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ratchet.errors import ManifestError, TrainingError
from ratchet.methods import grpo
from ratchet.methods.base import RolloutSample, Sampler

TASKS = [str(index) for index in range(10)]
QUICK = grpo.Settings(steps=6, prompts_per_step=2, group_size=4, lr=5e-3, validate_every=2)


def weights(model: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(bool((one[name] == other[name]).all()) for name in one)


def episode(
    token: int, reward: float | None, *, tail: Sequence[int] = (9,), prompt: Sequence[int] = (2, 3)
) -> RolloutSample:
    """An episode of one sampled token and a tool result."""
    return RolloutSample(
        list(prompt), [token, *tail], [1] + [0] * len(tail), [-3.0] + [0.0] * len(tail), reward, {"won": reward or 0.0}
    )


def fixed(episodes: list[RolloutSample]) -> Sampler:
    return lambda model, task_ids, step: episodes


def one_step(**changes: Any) -> grpo.Settings:
    return QUICK.model_copy(update={"steps": 1, **changes})


def by_hand(model: Any, rows: list[RolloutSample], group: int, *, skip_flat: bool = True) -> tuple[float, float]:
    """Loss and gradient norm of the policy gradient over the valid rows, with nothing of TRL in it."""
    import torch

    advantages: list[float] = []
    for start in range(0, len(rows), group):
        rewards = [row.reward for row in rows[start : start + group] if row.reward is not None]
        advantages += [
            0.0 if row.reward is None else row.reward - sum(rewards) / len(rewards)
            for row in rows[start : start + group]
        ]
    total, tokens = torch.zeros(()), 0
    for row, advantage in zip(rows, advantages, strict=True):
        if row.reward is None or (skip_flat and advantage == 0):
            continue
        ids = torch.tensor([row.prompt_ids + row.completion_ids])
        logps = model(input_ids=ids).logits.log_softmax(-1)
        for offset, bit in enumerate(row.sampled_mask):
            if bit:
                position = len(row.prompt_ids) + offset
                value = logps[0, position - 1, ids[0, position]]
                total = total - advantage * (value - value.detach()).exp()
                tokens += 1
    loss = total / tokens
    loss.backward()
    squares = [weight.grad.pow(2).sum() for weight in model.parameters() if weight.grad is not None]
    return loss.item(), torch.stack(squares).sum().sqrt().item()


EPISODES = [
    episode(7, 1.0),
    episode(8, 0.0, tail=(9, 10, 11)),
    episode(12, 0.25),
    episode(13, None),
    episode(7, 0.5, prompt=(4, 5, 6)),
    episode(14, None),
    episode(15, None),
    episode(16, 0.0, tail=()),
]


@pytest.mark.parametrize("skip_flat", [True, False])
def test_loss_and_gradient_are_those_of_the_sampled_tokens_of_valid_episodes(
    skip_flat: bool, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    rows = [*EPISODES[:4], *[episode(20 + index, 0.5) for index in range(4)]]
    outcome = grpo.fit(
        new_model(), tokenizer, TASKS, fixed(rows), one_step(skip_flat=skip_flat), seed=1, output=tmp_path
    )
    loss, norm = by_hand(new_model(), rows, 4, skip_flat=skip_flat)
    assert outcome.curve[0].loss == pytest.approx(loss, abs=1e-6)
    assert outcome.curve[0].grad_norm == pytest.approx(norm, rel=1e-4)


def test_an_invalid_episode_changes_no_weight_and_no_figure_whatever_it_holds(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    curves, results = [], []
    for number, junk in enumerate(
        [
            RolloutSample([], [], [], None, None, {}),
            RolloutSample([31] * 40, [30] * 20, [1] * 20, [float("nan")] * 20, None, {"won": 9.0}),
        ]
    ):
        rows = [junk if row.reward is None else row for row in EPISODES]
        model = new_model()
        settings = QUICK.model_copy(update={"steps": 2})
        outcome = grpo.fit(model, tokenizer, TASKS, fixed(rows), settings, seed=1, output=tmp_path / str(number))
        curves.append([row.model_dump(exclude={"seconds"}) for row in outcome.curve])
        results.append(weights(model))
    assert equal(results[0], results[1])
    assert curves[0] == curves[1]
    first = curves[0][0]
    assert first["invalid_share"] == 3 / 8
    assert first["reward"] == pytest.approx((1.0 + 0.0 + 0.25 + 0.5 + 0.0) / 5)
    assert first["metrics"]["won"] == pytest.approx(0.35)
    assert first["length"] == 1.0
    assert first["entropy"] == pytest.approx(3.0)


def test_what_a_judge_graded_in_a_step_is_counted_with_invalid_episodes_and_none_is_no_zero(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    rows = [row._replace(judge_calls=number % 2) for number, row in enumerate(EPISODES)]
    settings = QUICK.model_copy(update={"steps": 2})
    judged = grpo.fit(new_model(), tokenizer, TASKS, fixed(rows), settings, seed=1, output=tmp_path / "judged")
    assert [row.judge_calls for row in judged.curve] == [len(EPISODES) // 2] * 2
    alone = grpo.fit(new_model(), tokenizer, TASKS, fixed(EPISODES), settings, seed=1, output=tmp_path / "alone")
    assert [row.judge_calls for row in alone.curve] == [None] * 2


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo"])
def test_dropping_an_invalid_row_leaves_the_mean_over_the_valid_ones(
    loss_type: str, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """A group of two valid episodes teaches the same whether its other rows are invalid or were never there."""
    norms = []
    pair = [episode(7, 1.0), episode(8, 0.0)]
    for group, rows in ((2, pair), (4, [*pair, episode(12, None), episode(13, None)])):
        settings = one_step(loss_type=loss_type, prompts_per_step=1, group_size=group)
        outcome = grpo.fit(new_model(), tokenizer, TASKS, fixed(rows), settings, seed=1, output=tmp_path / str(group))
        norms.append(outcome.curve[0].grad_norm)
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


@pytest.mark.parametrize("reward", [0.5, None])
def test_a_step_that_teaches_nothing_moves_no_weight(
    reward: float | None, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    """Not by weight decay, and not by the momentum of an earlier step."""
    teaching = [episode(7, 1.0), episode(8, 0.0)] * 4
    flat = [episode(7, reward)] * 8
    kept: list[dict[str, Any]] = []

    def sampler(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        kept.append(weights(model))
        return teaching if step == 0 else flat

    model = new_model()
    settings = QUICK.model_copy(update={"steps": 3, "weight_decay": 0.1})
    outcome = grpo.fit(model, tokenizer, TASKS, sampler, settings, seed=1, output=tmp_path)
    assert not equal(kept[0], kept[1])
    assert equal(kept[1], kept[2])
    assert equal(kept[2], weights(model))
    assert len(outcome.curve) == 3


def test_the_reward_rises_and_validation_with_it(
    new_model: Callable[..., Any],
    tokenizer: Any,
    sampler: Sampler,
    likes_target: Callable[[Any], float],
    tmp_path: Path,
) -> None:
    settings = grpo.Settings(steps=20, prompts_per_step=4, group_size=8, lr=1e-2, validate_every=10)
    outcome = grpo.fit(new_model(), tokenizer, TASKS, sampler, settings, seed=1, output=tmp_path, validate=likes_target)
    rewards = [row.reward for row in outcome.curve if row.reward is not None]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.2
    assert outcome.validation is not None
    assert outcome.validation > 0.3
    assert outcome.curve[9].kl is not None
    assert outcome.curve[19].kl is not None
    assert outcome.curve[19].kl > outcome.curve[9].kl > 0
    assert outcome.curve[0].kl is None


def test_the_log_probs_of_sampler_and_trainer_agree(
    new_model: Callable[..., Any], tokenizer: Any, sampler: Sampler, tmp_path: Path
) -> None:
    """A ratio of 1 on every token: the loss against the sampler's log-probs equals that against the trainer's own."""
    losses = []
    for ratio in ("trainer", "sampler"):
        settings = one_step(ratio=ratio, group_size=8)
        outcome = grpo.fit(new_model(), tokenizer, TASKS, sampler, settings, seed=1, output=tmp_path / ratio)
        losses.append((outcome.curve[0].loss, outcome.curve[0].grad_norm))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4, abs=1e-6)


def test_the_sampler_sees_whole_groups_and_its_random_states_depend_on_the_step_alone(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    import torch

    asked: list[list[str]] = []
    drawn: list[float] = []

    def sampler(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        assert not model.training
        asked.append(task_ids)
        drawn.append(float(torch.rand(())))
        return [episode(7, float(index % 2)) for index in range(len(task_ids))]

    for output in ("one", "two"):
        grpo.fit(new_model(), tokenizer, TASKS, sampler, QUICK, seed=1, output=tmp_path / output)
    assert asked[:6] == asked[6:]
    assert drawn[:6] == drawn[6:]
    assert len(set(drawn[:6])) == 6
    for tasks in asked:
        assert tasks == [tasks[0]] * 4 + [tasks[4]] * 4
        assert tasks[0] != tasks[4]
    assert sorted(tasks[index] for tasks in asked[:5] for index in (0, 4)) == sorted(TASKS)


@pytest.mark.parametrize("iterations", [1, 2])
def test_an_interrupted_run_ends_in_the_weights_of_an_uninterrupted_one(
    iterations: int, new_model: Callable[..., Any], tokenizer: Any, sampler: Sampler, tmp_path: Path
) -> None:
    settings = QUICK.model_copy(update={"group_size": 8, "iterations": iterations})
    whole = new_model()
    first = grpo.fit(whole, tokenizer, TASKS, sampler, settings, seed=1, output=tmp_path / "whole")

    def power_cut(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        if step == 5:
            raise KeyboardInterrupt
        return sampler(model, task_ids, step)

    with pytest.raises(KeyboardInterrupt):
        grpo.fit(new_model(), tokenizer, TASKS, power_cut, settings, seed=1, output=tmp_path / "cut")
    resumed = new_model()
    second = grpo.fit(resumed, tokenizer, TASKS, sampler, settings, seed=1, output=tmp_path / "cut")
    assert second.resumed_from == 4 * iterations
    assert equal(weights(whole), weights(resumed))
    assert [row.loss for row in second.curve] == [row.loss for row in first.curve]


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo", "cispo"])
def test_micro_batches_give_the_gradient_of_the_whole_batch(
    loss_type: str, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    norms = []
    for micro in (None, 2):
        outcome = grpo.fit(
            new_model(),
            tokenizer,
            TASKS,
            fixed(EPISODES),
            one_step(micro_batch=micro, loss_type=loss_type),
            seed=1,
            output=tmp_path / str(micro),
        )
        norms.append(outcome.curve[0].grad_norm)
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


@pytest.mark.parametrize("adapter", [None, {"r": 4}])
def test_the_tie_to_the_start_is_to_the_weights_that_came_in(
    adapter: dict[str, int] | None, new_model: Callable[..., Any], tokenizer: Any, sampler: Sampler, tmp_path: Path
) -> None:
    settings = QUICK.model_copy(update={"beta": 0.1, "steps": 3, "lr": 2e-2, "group_size": 8})
    outcome = grpo.fit(new_model(), tokenizer, TASKS, sampler, settings, seed=1, output=tmp_path, adapter=adapter)
    assert outcome.curve[0].kl == pytest.approx(0, abs=1e-6)
    assert outcome.curve[2].kl is not None
    assert outcome.curve[2].kl > 1e-5
    assert (outcome.checkpoint / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (episode(7, float("nan")), "reward is nan"),
        (RolloutSample([2], [7, 8], [1], [-1.0, -1.0], 1.0, {}), "mask must have one entry"),
        (RolloutSample([], [7, 8], [1, 1], [-1.0, -1.0], 1.0, {}), "prompt"),
        (RolloutSample([2], [7, 8], [0, 0], [-1.0, -1.0], 1.0, {}), "at least one token"),
        (RolloutSample([2], [7, 8], [1, 1], [-1.0], 1.0, {}), "number of log-probs"),
    ],
)
def test_a_bad_episode_is_refused(
    bad: RolloutSample, message: str, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=f"episode 7 of the step.*{message}"):
        grpo.fit(new_model(), tokenizer, TASKS, fixed([*EPISODES[:7], bad]), one_step(), seed=1, output=tmp_path)


def test_settings_that_exclude_each_other_and_too_few_tasks_are_refused(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    with pytest.raises(ManifestError, match="loss_type"):
        grpo.fit(None, tokenizer, TASKS, fixed([]), one_step(micro_batch=2, loss_type="bnpo"), seed=1, output=tmp_path)
    with pytest.raises(ManifestError, match="divide the 8 rows"):
        grpo.fit(new_model(), tokenizer, TASKS, fixed([]), one_step(micro_batch=3), seed=1, output=tmp_path)
    with pytest.raises(TrainingError, match="number of tasks is 1"):
        grpo.fit(None, tokenizer, ["1", "1"], fixed([]), one_step(), seed=1, output=tmp_path)
