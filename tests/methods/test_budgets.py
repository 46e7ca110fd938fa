"""Budgets, and what of validation outlives a run that was cut: for every method, on the tiny policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.contracts.training import TokenSample
from ratchet.methods import grpo, sft
from ratchet.methods.base import RolloutSample, Sampler, Spend, Validation

DEMONSTRATIONS = [TokenSample([2 + index % 5, 3, 7], [False, False, True], None, (1,)) for index in range(12)]
QUICK = sft.Settings(epochs=4, batch_size=6, lr=1e-2)
TASKS = [str(index) for index in range(4)]


def test_the_cost_budget_stops_cleanly_with_the_best_checkpoint_so_far(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    asked: list[tuple[float, int]] = []
    answers = iter([0.6, 0.2, 0.9])

    def cost(seconds: float, judge_calls: int) -> float:
        asked.append((seconds, judge_calls))
        return float(len(asked))

    outcome = sft.fit(
        new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path,
        validate=lambda _: next(answers), spend=Spend(3.0, cost),
    )  # fmt: skip
    assert outcome.stopped == "cost_budget"
    assert len(outcome.curve) == 3
    # Validated at step 2 (0.6) and where it stopped, at step 3 (0.2): the better one is kept.
    assert (outcome.step, outcome.validation) == (2, 0.6)
    assert (outcome.checkpoint / "model.safetensors").exists()
    assert [seconds for seconds, _ in asked] == sorted(seconds for seconds, _ in asked)


def test_what_a_judge_graded_is_paid_for_in_the_step_that_asked_it(
    new_model: Callable[..., Any], tokenizer: Any, sampler: Sampler, tmp_path: Path
) -> None:
    def judged(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        return [row._replace(judge_calls=1) for row in sampler(model, task_ids, step)]

    settings = grpo.Settings(steps=6, prompts_per_step=2, group_size=4)
    outcome = grpo.fit(
        new_model(), tokenizer, TASKS, judged, settings, seed=1, output=tmp_path,
        spend=Spend(0.24, lambda seconds, calls: 0.01 * calls),
    )  # fmt: skip
    assert (outcome.stopped, len(outcome.curve)) == ("cost_budget", 3)
    assert sum(row.judge_calls or 0 for row in outcome.curve) == 24


def test_a_resumed_run_goes_on_paying_for_the_time_before_it_was_cut(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    def cut(model: Any) -> float:
        rows = tmp_path / "curves.jsonl"
        if rows.exists() and len(rows.read_text(encoding="utf-8").splitlines()) >= 5:
            raise KeyboardInterrupt
        return 0.5

    with pytest.raises(KeyboardInterrupt):
        sft.fit(new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path, validate=cut)
    spent: list[float] = []

    def cost(seconds: float, judge_calls: int) -> float:
        spent.append(seconds)
        return 0.0

    outcome = sft.fit(
        new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path, validate=lambda _: 0.5,
        spend=Spend(1.0, cost),
    )  # fmt: skip
    before = outcome.curve[3].seconds
    assert outcome.resumed_from == 4
    assert before > 0
    assert spent[0] > before
    assert outcome.stopped == "finished"


def test_the_outcome_tells_what_the_kept_checkpoint_did_on_each_task_resumed_or_not(
    new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    answers = iter([Validation(0.5, {"a": True, "b": False}), Validation(0.0, {"a": False, "b": False})])

    def validate(model: Any) -> Validation:
        found = next(answers, None)
        if found is None:
            raise KeyboardInterrupt
        return found

    with pytest.raises(KeyboardInterrupt):
        sft.fit(new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path, validate=validate)
    outcome = sft.fit(
        new_model(), tokenizer, DEMONSTRATIONS, QUICK, seed=1, output=tmp_path,
        validate=lambda _: Validation(0.25, {"a": False, "b": True}),
    )  # fmt: skip
    assert outcome.resumed_from == 4
    assert (outcome.step, outcome.validation, outcome.outcomes) == (2, 0.5, {"a": True, "b": False})
