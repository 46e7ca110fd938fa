"""What an accepted run costs, and when a training investment has paid for itself.

All costs are in the currency of the price list. With zero accepted runs every cost per accepted run, and all that
derives from it, is not computable; that is said in words and never shown as a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from pydantic import Field

from ratchet.contracts.environment import Prices
from ratchet.contracts.model import Contract
from ratchet.contracts.score import NotComputable, Quantity, combine
from ratchet.evaluation.intervals import FEW_CLUSTERS, MIN_CLUSTERS, percentile_interval
from ratchet.evaluation.reducers import Floats

NO_ACCEPTED = NotComputable(reason="0 accepted results in the window")
NEVER = NotComputable(reason="never: an accepted run costs no less than the incumbent's")
INCUMBENT = NotComputable(reason="this is the incumbent")


class Spent(Protocol):
    """What a run used: a row of an evaluation, or a live task."""

    @property
    def tokens_in(self) -> int:
        """Tokens read."""

    @property
    def tokens_out(self) -> int:
        """Tokens sampled."""

    @property
    def sandbox_s(self) -> float:
        """Sandbox CPU seconds."""

    @property
    def verifier_s(self) -> float:
        """Verifier CPU seconds."""

    @property
    def judge_calls(self) -> int:
        """Judged items."""


def run_cost(row: Spent, prices: Prices) -> float:
    """Price one run; a row counts with all its attempts."""
    return (
        row.tokens_in * prices.per_million_input_tokens / 1e6
        + row.tokens_out * prices.per_million_output_tokens / 1e6
        + row.sandbox_s * prices.per_sandbox_s
        + row.verifier_s * prices.per_verifier_s
        + row.judge_calls * prices.per_judge_call
    )


def training_cost(training: Mapping[str, Any], prices: Prices) -> float:
    """Price a training stage by the hours it held the training machine, and by what a judge graded for it.

    Rollouts and their verification run on that machine, so its hours pay for them.

    Args:
        training: what a policy's record says of its training: `seconds`, `judge_calls` of the rows of its `curve`, and
            `bought`, what was paid to others, such as a reflection model; empty for an untrained policy.
        prices: price list.
    """
    graded = sum(row.get("judge_calls") or 0 for row in training.get("curve", ()))
    machine = float(training.get("seconds", 0.0)) / 3600 * prices.per_trainer_hour
    return machine + graded * prices.per_judge_call + float(training.get("bought", 0.0))


def variable_cost(cost: float, accepted: float) -> Quantity:
    """Variable cost per accepted run: a ratio of sums, so that failed and retried runs are paid for.

    Args:
        cost: of all runs of the window, invalid attempts included.
        accepted: runs among them that were accepted.
    """
    return NO_ACCEPTED if accepted == 0 else cost / accepted


def cost_floor(cost: float, accepted: float) -> Quantity:
    """Lower 95 % bound of the cost per accepted run where none was accepted: cost / 3 (rule of three, Hanley 1983)."""
    return cost / 3 if accepted == 0 else NotComputable(reason="results were accepted, so the cost itself is known")


def loaded_cost(variable: Quantity, training: float, accepted: float) -> Quantity:
    """Variable cost plus the training investment spread over the accepted runs of the window."""
    return combine(lambda v: v + training / accepted, variable) if accepted else NO_ACCEPTED


def amortised_cost(variable: Quantity, training: float, horizon_runs: int) -> Quantity:
    """Variable cost plus the training investment spread over a horizon of accepted runs."""
    return combine(lambda v: v + training / horizon_runs, variable)


def break_even(training: float, variable_incumbent: Quantity, variable_candidate: Quantity) -> Quantity:
    """Accepted runs after which the investment is paid back: ceil(training / saving per accepted run).

    Returns:
        A whole number as float; "never" in words where the candidate saves nothing; not computable where a cost is.
    """
    saving = combine(lambda incumbent, candidate: incumbent - candidate, variable_incumbent, variable_candidate)
    if isinstance(saving, NotComputable):
        return saving
    return NEVER if saving <= 0 else float(math.ceil(training / saving))


class BreakEven(Contract):
    """Break-even with its bootstrap interval; a bound may be "never"."""

    value: Quantity = Field(description="Accepted runs until the investment is paid back.")
    low: Quantity = Field(description="Lower bound.")
    high: Quantity = Field(description="Upper bound.")


def break_even_interval(training: float, value: Quantity, resamples: Floats, clusters: int) -> BreakEven:
    """Give break-even its interval from the resamples that the other figures use.

    Args:
        training: investment.
        value: the estimate.
        resamples: `(resamples, 4)`: candidate's cost and accepted runs, incumbent's cost and accepted runs.
        clusters: how many clusters were resampled.
    """
    if isinstance(value, NotComputable) and value != NEVER:
        return BreakEven(value=value, low=value, high=value)
    if clusters < MIN_CLUSTERS:
        return BreakEven(value=value, low=FEW_CLUSTERS, high=FEW_CLUSTERS)
    # A resample without a saving never breaks even; one whose incumbent accepts nothing breaks even at once.
    with np.errstate(divide="ignore", invalid="ignore"):
        saving = resamples[:, 2] / resamples[:, 3] - resamples[:, 0] / resamples[:, 1]
        runs = np.where(saving > 0, np.ceil(training / saving), np.inf)
    low, high = percentile_interval(runs, clusters)
    # Between two resamples a percentile is no whole number, and nobody makes half a run.
    return BreakEven(
        value=value,
        low=float(math.floor(low)) if math.isfinite(low) else NEVER,
        high=float(math.ceil(high)) if math.isfinite(high) else NEVER,
    )


class Investment(Contract):
    """What was spent on training a policy."""

    stage: float = Field(ge=0, description="Training cost of the policy's own stage.")
    cumulative: float = Field(ge=0, description="With the stages it started from, back to the base checkpoint.")
    beyond_incumbent: float = Field(
        ge=0, description="The same without what the incumbent cost, where it started from that: this must pay back."
    )

    @classmethod
    def of(cls, stages: Iterable[float], shared: int = 0) -> Investment:
        """Build from the costs of the chain of stages, the policy's own last; empty for an untrained policy.

        Args:
            stages: costs, the first stage first.
            shared: how many of the first stages made the incumbent, where the policy started from it.
        """
        chain = list(stages)
        return cls(
            stage=chain[-1] if chain else 0.0,
            cumulative=math.fsum(chain),
            beyond_incumbent=math.fsum(chain[shared:]),
        )


class Cost(Contract):
    """Complete cost of a policy, per accepted run where the name does not say otherwise."""

    currency: str = Field(description="ISO 4217 code.")
    window_total: float = Field(description="Cost of all runs of the evaluation, retries included.")
    accepted_runs: int = Field(description="Accepted runs of the evaluation.")
    variable_per_accepted: Quantity = Field(description="Cost of all runs over the accepted ones.")
    floor_per_accepted: Quantity = Field(description="Lower bound where nothing was accepted.")
    training: Quantity = Field(description="Training cost of the policy's own stage.")
    training_cumulative: Quantity = Field(description="Training cost back to the base checkpoint.")
    training_beyond_incumbent: Quantity = Field(description="The part of it that break-even must pay back.")
    loaded: Quantity = Field(description="Variable plus cumulative training over the accepted runs of the window.")
    amortised: Quantity = Field(description="Variable plus cumulative training over the horizon.")
    horizon_runs: int = Field(description="Accepted runs that the training cost is spread over.")
    break_even: BreakEven = Field(description="Accepted runs until the training is paid back against the incumbent.")
