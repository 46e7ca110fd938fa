"""What ends a run early, for every method: numbers that are none, a loss that diverges, each of the budgets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from every_method import METHODS, learns, settings
from tiny_policy import TOOL

from ratchet.contracts.training import TokenSample
from ratchet.errors import TrainingError
from ratchet.methods import base
from ratchet.methods.base import PairSample, RolloutSample, Spend

ACTING = ("grpo", "gspo", "rloo")
DIAGNOSIS = r"last losses \[.*\], gradient norms \[.*\], lr .*"


def rows(output: Path) -> list[dict[str, Any]]:
    curve = output / "curves.jsonl"
    return [json.loads(line) for line in curve.read_text(encoding="utf-8").splitlines()] if curve.exists() else []


def played(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
    """Episodes whose tokens and rewards do not come from the model, so that nothing of it has to be finite."""
    return [RolloutSample([2, 3], [4 + at % 8, TOOL], [1, 0], None, float(at % 2), {}) for at, _ in enumerate(task_ids)]


def contradictory(name: str) -> tuple[Any, ...]:
    """What no policy can learn, so that steps of any size only throw it about."""
    needs = base.method(name).NEEDS
    if needs == "demonstrations":
        return ([TokenSample([2, 3, token], [False, False, True], None, (1,)) for token in range(4, 28)],)
    if needs == "pairs":
        both = [(token, token + 1) for token in range(4, 27)]
        return ([PairSample([2, 3], [good], [1], [bad], [1]) for pair in both for good, bad in (pair, pair[::-1])],)

    def drawn(model: Any, task_ids: list[str], step: int) -> list[RolloutSample]:
        tokens = [4 + (at * 5 + step) % 24 for at, _ in enumerate(task_ids)]
        return [RolloutSample([2, 3], [token], [1], None, float((token + step) % 2), {}) for token in tokens]

    return ([str(index) for index in range(10)], drawn)


@pytest.mark.parametrize("name", METHODS)
def test_weights_that_are_no_numbers_stop_the_run_before_any_update(
    name: str, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    model = new_model()
    model.model.norm.weight.data[0] = math.nan
    before = model.model.embed_tokens.weight.detach().clone()
    learn = (learns(name)[0], played) if name in ACTING else learns(name)
    with pytest.raises(TrainingError, match=rf"{name}: the gradient of .* at step 1 .* must be finite \({DIAGNOSIS}"):
        base.method(name).fit(model, tokenizer, *learn, settings(name, 6), seed=1, output=tmp_path)
    assert (model.model.embed_tokens.weight == before).all()
    assert rows(tmp_path) == []
    assert not (tmp_path / "best").exists()


@pytest.mark.parametrize("name", METHODS)
def test_a_diverging_loss_stops_the_run_with_a_diagnosis(
    name: str, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    # One update per batch has a ratio of 1 and a bounded loss: what can diverge is the second update.
    changes = {"iterations": 2} if name in ACTING else {}
    wild = settings(name, 200, lr=50.0, validate_every=1000, **changes)
    with pytest.raises(TrainingError, match=DIAGNOSIS) as caught:
        base.method(name).fit(new_model(), tokenizer, *contradictory(name), wild, seed=1, output=tmp_path)
    assert caught.value.culprit.startswith(f"{name}: ")
    assert "lower lr" in caught.value.remedy
    assert len(rows(tmp_path)) < 40


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("budget", ["wall_budget", "cost_budget"])
def test_a_budget_ends_the_run_after_a_step_with_the_best_checkpoint_so_far(
    budget: str, name: str, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    answers = iter([0.6, 0.2])
    seen: list[int] = []

    def validate(model: Any) -> float:
        seen.append(len(rows(tmp_path)) + 1)
        return next(answers)

    def cost(seconds: float, judge_calls: int) -> float:
        return float(len(rows(tmp_path)) + 1)

    # Both are asked after each step: at the third, money runs out; time does at once.
    limits: Any = {"max_wall_s": 1e-9} if budget == "wall_budget" else {"spend": Spend(3.0, cost)}
    outcome = base.method(name).fit(
        new_model(), tokenizer, *learns(name), settings(name, 6), seed=1, output=tmp_path, validate=validate, **limits
    )
    assert outcome.stopped == budget
    ended = 1 if budget == "wall_budget" else 3
    assert [row["step"] for row in rows(tmp_path)] == list(range(1, ended + 1))
    assert seen == ([1] if budget == "wall_budget" else [2, 3])
    assert (outcome.step, outcome.validation) == (seen[0], 0.6)
    assert (outcome.checkpoint / "model.safetensors").exists()


@pytest.mark.parametrize("name", METHODS)
def test_the_budget_of_steps_is_kept_and_is_no_early_end(
    name: str, new_model: Callable[..., Any], tokenizer: Any, tmp_path: Path
) -> None:
    changes = {} if name in ACTING else {"epochs": 50, "max_steps": 3}
    outcome = base.method(name).fit(
        new_model(), tokenizer, *learns(name), settings(name, 3, **changes), seed=1, output=tmp_path
    )
    assert (outcome.stopped, len(outcome.curve), outcome.step) == ("finished", 3, 3)
