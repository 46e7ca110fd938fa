"""What every trained method learns from on the tiny policy, and settings that make few, quick steps of it."""

from __future__ import annotations

from typing import Any

from tiny_policy import sample

from ratchet.contracts.training import TokenSample
from ratchet.methods import base
from ratchet.methods.base import PairSample

METHODS = ("sft", "dpo", "orpo", "grpo", "gspo", "rloo")


def learns(name: str) -> tuple[Any, ...]:
    """Demonstrations, pairs, or tasks with a sampler that plays them."""
    needs = base.method(name).NEEDS
    if needs == "demonstrations":
        return ([TokenSample([2 + index % 5, 3, 7], [False, False, True], None, (1,)) for index in range(12)],)
    if needs == "pairs":
        return ([PairSample([2 + index % 5, 3], [7, 9, 7], [1, 0, 1], [8, 9], [1, 0]) for index in range(12)],)
    return ([str(index) for index in range(10)], sample)


def settings(name: str, steps: int, **changes: Any) -> Any:
    """So many optimizer steps, validated after every second."""
    method = base.method(name)
    if method.NEEDS == "tasks":
        own: dict[str, Any] = {"steps": steps, "prompts_per_step": 2, "group_size": 8, "iterations": 1}
    else:
        own = {"epochs": steps / 2, "batch_size": 6}
    return method.Settings(**{"lr": 1e-3, "validate_every": 2, **own, **changes})
