"""Per-token advantages from step rewards: process supervision beside the outcome's advantage.

Shao et al., 2024 (DeepSeekMath, arXiv:2402.03300), section 4.1.3: the rewards of all steps of all outputs of a group
are normalised together, and a token's advantage is the sum of the normalised rewards of the steps that end at or after
it. Here an episode's steps are its turns, the outcome's own group-relative advantage A(e) stays, and the process term
is weighted against it:

    r~(e, j) = (r(e, j) - mean) / deviation            over all turns j of all valid episodes e of the group
    A(e, t)  = A(e) + weight x sum over turns j >= turn(t) of r~(e, j)

The deviation is 1 where `scale_rewards` is `none` (as for the outcome, Liu et al., 2025, arXiv:2503.20783), that of the
group's or the batch's step rewards plus 1e-4 otherwise, which is what TRL does with the outcome's. An invalid episode
has no steps and enters no mean. Imports torch: load it inside `fit`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ratchet.errors import TrainingError
from ratchet.methods.base import RolloutSample, StepRewards

EPSILON = 1e-4
"""What TRL adds to a deviation."""


def checked_steps(where: str, sample: RolloutSample) -> None:
    """Refuse step rewards that do not fit their episode.

    Raises:
        TrainingError: they are not aligned, not in [0, 1], or put a turn on a token that the policy did not sample.
    """
    steps = sample.steps
    if steps is None:
        return
    remedy = "correct the sampler"
    if len(steps.turns) != len(sample.completion_ids):
        raise TrainingError(
            f"{where}: turns of tokens",
            seen=len(steps.turns),
            rule=f"one for each of {len(sample.completion_ids)} tokens",
            remedy=remedy,
        )
    if not all(math.isfinite(value) and 0 <= value <= 1 for value in steps.values):
        raise TrainingError(f"{where}: step rewards", seen=steps.values, rule="in [0, 1]", remedy=remedy)
    for turn, bit in zip(steps.turns, sample.sampled_mask, strict=True):
        if (turn >= 0) != bool(bit) or turn >= len(steps.values):
            raise TrainingError(
                f"{where}: turns of tokens",
                seen=turn,
                rule="a sampled token is of a turn that has a reward, and no other token is of any",
                remedy=remedy,
            )
    if not (math.isfinite(steps.weight) and steps.weight >= 0):
        raise TrainingError(f"{where}: step weight", seen=steps.weight, rule="finite, not negative", remedy=remedy)


def step_advantages(samples: Sequence[RolloutSample], *, group: int, scale: str, width: int) -> torch.Tensor | None:
    """Return what the steps add to the advantage of every token.

    Args:
        samples: the step's episodes, each group in a row.
        group: episodes per group.
        scale: `none`, `group` or `batch`: whose deviation step rewards are divided by.
        width: tokens of the padded completions.

    Returns:
        A tensor of shape (episodes, `width`), 0 on tokens that no turn sampled; None where no step has weight.
    """
    own = [_weighted(sample) for sample in samples]
    if not any(own):
        return None
    batch = [value for steps in own if steps for value in steps.values]
    added = torch.zeros(len(samples), width)
    for start in range(0, len(samples), group):
        rewards = [value for steps in own[start : start + group] if steps for value in steps.values]
        divisor = {"none": 1.0, "group": _deviation(rewards), "batch": _deviation(batch)}[scale]
        for row, steps in enumerate(own[start : start + group], start):
            if steps is not None:
                returns = _returns(steps.values, math.fsum(rewards) / len(rewards), divisor)
                for column, turn in enumerate(steps.turns):
                    if turn >= 0:
                        added[row, column] = steps.weight * returns[turn]
    return added


def _weighted(sample: RolloutSample) -> StepRewards | None:
    steps = sample.steps
    return steps if sample.reward is not None and steps is not None and steps.weight > 0 and steps.values else None


def _returns(values: Sequence[float], mean: float, divisor: float) -> list[float]:
    """Sum of the normalised rewards from each turn on."""
    returns, following = [], 0.0
    for value in reversed(values):
        following += (value - mean) / divisor
        returns.append(following)
    return returns[::-1]


def _deviation(values: Sequence[float]) -> float:
    """Sample standard deviation plus TRL's epsilon."""
    if len(values) < 2:
        return EPSILON
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)) + EPSILON
