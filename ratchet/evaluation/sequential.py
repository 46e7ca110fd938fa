"""The anytime-valid comparison of a canary with production: two e-processes on paired differences in [-1, 1].

D is the outcome of the canary less that of production. Where the mean of D is at least -d, the mean over a grid of
lambda of prod(1 - lambda (D + d)) is a non-negative supermartingale that starts at 1, so it ever reaches 1/alpha with
probability alpha at most (Ville 1939; betting form: Waudby-Smith and Ramdas 2024, arXiv:2010.09686). The same with a
plus holds where the mean is at most -d. So looking after every pair, and stopping at the first verdict, inflates
nothing. Covered: the two processes, their verdict and a state that outlives a process. Not covered: which outcomes are
paired; an invalid outcome is left out by whoever pairs them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, model_validator

from ratchet.contracts.model import Contract
from ratchet.errors import EvaluationError

Verdict = Literal["promote", "roll_back", "hold"]
GRID = (0.05, 0.1, 0.2, 0.3)
"""Bets: small ones find small differences late, large ones find large differences soon."""


class WealthState(Contract):
    """Both processes after some pairs, as plain JSON; a float comes back from JSON as it was."""

    margin: float = Field(ge=0, lt=1, description="d, the drop that is tested against.")
    alpha: float = Field(gt=0, lt=1, description="Error of each verdict.")
    grid: tuple[float, ...] = Field(min_length=1, description="Bets, each above 0 and below 1 / (1 + d).")
    horizon: int | None = Field(default=None, ge=1, description="Pairs after which nothing more is taken.")
    pairs: int = Field(default=0, ge=0, description="Pairs taken.")
    against: tuple[float, ...] = Field(description="Log wealth of each bet that the mean is below -d.")
    favour: tuple[float, ...] = Field(description="Log wealth of each bet that the mean is above -d.")

    @model_validator(mode="after")
    def _can_be_bet(self) -> WealthState:
        if not all(0 < bet < 1 / (1 + self.margin) for bet in self.grid):
            raise ValueError(f"every bet is above 0 and below 1 / (1 + margin), and the grid is {self.grid}")
        if not len(self.grid) == len(self.against) == len(self.favour):
            raise ValueError("there is one log wealth for every bet")
        if not all(map(math.isfinite, self.against + self.favour)):
            raise ValueError("a log wealth is a finite number")
        return self


class Wealth:
    """Both processes, fed one pair at a time. They stop at the verdict or at the horizon, whichever is first."""

    def __init__(
        self,
        *,
        margin: float = 0.03,
        alpha: float = 0.05,
        grid: tuple[float, ...] = GRID,
        horizon: int | None = None,
    ) -> None:
        """Start at wealth 1.

        Args:
            margin: d, the drop that is tested against, in [0, 1).
            alpha: error of each verdict, in (0, 1).
            grid: bets, each above 0 and below 1 / (1 + d).
            horizon: pairs after which nothing more is taken, or None to go on until a verdict.

        Raises:
            ValueError: one of them is out of range.
        """
        even = (0.0,) * len(grid)
        self._start(WealthState(margin=margin, alpha=alpha, grid=grid, horizon=horizon, against=even, favour=even))

    @classmethod
    def resume(cls, state: WealthState) -> Wealth:
        """Go on where `state` was taken: the same pairs lead to the same verdict as without the interruption."""
        wealth = cls.__new__(cls)
        wealth._start(state)
        return wealth

    def _start(self, state: WealthState) -> None:
        self.margin, self.alpha, self.grid, self.horizon = state.margin, state.alpha, state.grid, state.horizon
        self.threshold = 1 / state.alpha
        self.pairs = state.pairs
        self._against, self._favour = list(state.against), list(state.favour)

    @property
    def state(self) -> WealthState:
        """The processes as they stand, to be stored."""
        return WealthState(
            margin=self.margin,
            alpha=self.alpha,
            grid=self.grid,
            horizon=self.horizon,
            pairs=self.pairs,
            against=tuple(self._against),
            favour=tuple(self._favour),
        )

    def update(self, difference: float) -> Verdict:
        """Take the next pair and return the verdict now; once settled, nothing more is taken.

        Args:
            difference: D of the pair, canary less production, in [-1, 1].

        Raises:
            EvaluationError: it is not a number in [-1, 1]; nothing has been taken.
        """
        if not -1 <= difference <= 1:
            raise EvaluationError(
                f"difference of pair {self.pairs + 1}",
                seen=difference,
                rule="it must be a number from -1 to 1",
                remedy="score both arms from 0 to 1, and leave out a pair with an invalid outcome",
            )
        if not self.settled:
            excess = difference + self.margin
            for index, bet in enumerate(self.grid):
                self._against[index] += math.log1p(-bet * excess)
                self._favour[index] += math.log1p(bet * excess)
            self.pairs += 1
        return self.verdict

    @property
    def verdict(self) -> Verdict:
        """What is proven so far; `hold` where nothing is. Both at once cannot be: a pair feeds one and drains one."""
        if self.roll_back_wealth >= self.threshold:
            return "roll_back"
        return "promote" if self.promote_wealth >= self.threshold else "hold"

    @property
    def settled(self) -> bool:
        """Whether the verdict stands: something is proven, or the horizon is reached (then `hold` stands)."""
        return self.verdict != "hold" or (self.horizon is not None and self.pairs >= self.horizon)

    @property
    def roll_back_wealth(self) -> float:
        """Evidence that the mean is below -d; an e-value, 1 at the start."""
        return _mean_of_exp(self._against)

    @property
    def promote_wealth(self) -> float:
        """Evidence that the mean is above -d; an e-value, 1 at the start."""
        return _mean_of_exp(self._favour)


def verdict_of(
    differences: Iterable[float],
    *,
    margin: float = 0.03,
    alpha: float = 0.05,
    grid: tuple[float, ...] = GRID,
    horizon: int | None = None,
) -> Verdict:
    """Return the verdict that the pairs, in order of arrival, come to. Arguments and errors as in `Wealth`."""
    wealth = Wealth(margin=margin, alpha=alpha, grid=grid, horizon=horizon)
    for difference in differences:
        wealth.update(difference)
    return wealth.verdict


def _mean_of_exp(logs: list[float]) -> float:
    return math.fsum(map(math.exp, logs)) / len(logs)
