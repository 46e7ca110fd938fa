"""How the canary's e-process behaves over thousands of streams: its error under peeking, and when it decides.

Streams are pairs of independent tasks, production accepting three of four; every stream is looked at after every pair.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest

from ratchet.evaluation.sequential import GRID, Wealth

PRODUCTION, PAIRS, STREAMS = 0.75, 2_000, 4_000


class Ends(NamedTuple):
    """Pair of the first crossing of each process in every stream, PAIRS + 1 where there is none."""

    rolled_back: np.ndarray
    promoted: np.ndarray

    @property
    def roll_backs(self) -> np.ndarray:
        return self.rolled_back[self.rolled_back < self.promoted]

    @property
    def rolled_back_share(self) -> float:
        return len(self.roll_backs) / len(self.promoted)

    @property
    def promoted_share(self) -> float:
        return float(np.mean(self.promoted < self.rolled_back))


def streams(drop: float, seed: int, count: int = STREAMS) -> np.ndarray:
    rng = np.random.default_rng(seed)
    canary = rng.random((count, PAIRS), dtype=np.float32) < PRODUCTION - drop
    return canary.astype(np.int8) - (rng.random((count, PAIRS), dtype=np.float32) < PRODUCTION).astype(np.int8)


def ends(differences: np.ndarray, margin: float = 0.03, alpha: float = 0.05) -> Ends:
    """Both processes at once on `(streams, pairs)` of -1, 0 and 1: a product depends on the counts alone."""
    up = np.cumsum(differences == 1, axis=1, dtype=np.int32)
    down = np.cumsum(differences == -1, axis=1, dtype=np.int32)
    even = np.arange(1, differences.shape[1] + 1, dtype=np.int32) - up - down
    found = []
    for sign in (-1, 1):
        total = np.zeros(differences.shape)
        for bet in GRID:
            plus, minus, zero = (math.log1p(sign * bet * (d + margin)) for d in (1, -1, 0))
            total += np.exp(np.minimum(up * plus + down * minus + even * zero, 50.0))
        hit = total / len(GRID) >= 1 / alpha
        found.append(np.where(hit.any(axis=1), hit.argmax(axis=1) + 1, differences.shape[1] + 1))
    return Ends(*found)


def test_the_vectorised_simulation_decides_as_the_process_itself_does() -> None:
    for drop in (0.0, 0.1, 0.175):
        sample = streams(drop, seed=5, count=6)
        found = ends(sample)
        for index, stream in enumerate(sample):
            wealth = Wealth(horizon=PAIRS)
            for difference in stream.tolist():
                wealth.update(difference)
            first = min(found.rolled_back[index], found.promoted[index])
            verdict = "hold" if first > PAIRS else "roll_back" if first == found.rolled_back[index] else "promote"
            assert (wealth.verdict, wealth.pairs) == (verdict, min(first, PAIRS))


@pytest.mark.slow
def test_ten_points_worse_rolls_back_nearly_always() -> None:
    found = ends(streams(0.1, seed=11))
    assert found.rolled_back_share == pytest.approx(0.99, abs=0.01)
    assert np.median(found.roll_backs) == pytest.approx(457, rel=0.05)


@pytest.mark.slow
def test_seventeen_and_a_half_points_worse_rolls_back_always_and_soon() -> None:
    found = ends(streams(0.175, seed=12))
    assert found.rolled_back_share > 0.999
    assert np.median(found.roll_backs) == pytest.approx(142, rel=0.05)


@pytest.mark.slow
def test_five_points_worse_is_mostly_undecided_at_the_horizon() -> None:
    found = ends(streams(0.05, seed=13))
    assert found.rolled_back_share == pytest.approx(0.18, abs=0.03)
    assert found.promoted_share < 0.01


@pytest.mark.slow
def test_no_change_is_never_rolled_back_and_often_promoted() -> None:
    found = ends(streams(0.0, seed=14))
    assert found.rolled_back_share < 0.005
    assert found.promoted_share == pytest.approx(0.42, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("margin", [0.0, 0.03, 0.1])
def test_the_false_alarm_stays_under_alpha_though_every_pair_is_looked_at(margin: float) -> None:
    """At exactly minus the margin either verdict is an error, and each has its own alpha."""
    found = ends(streams(margin, seed=15), margin=margin)
    assert 0.005 < np.mean(found.rolled_back <= PAIRS) < 0.05
    assert 0.005 < np.mean(found.promoted <= PAIRS) < 0.05


@pytest.mark.slow
def test_peeking_with_z_would_alarm_in_two_of_five_streams_that_have_no_difference() -> None:
    """From the fiftieth pair on; whoever looks sooner is fooled more often."""
    differences = streams(0.0, seed=16).astype(np.float64)
    z = np.cumsum(differences, axis=1) / np.sqrt(np.maximum(np.cumsum(differences**2, axis=1), 1))
    assert np.mean((np.abs(z[:, 49:]) > 1.96).any(axis=1)) == pytest.approx(0.42, abs=0.02)
