"""The scorecard: everything that is known of one policy from its held-out rows, and the door to the gate.

It is a pure function of rows, prices and training costs, identical for rows in any order, and carries the digests of
its inputs. A void evaluation still shows its counts, and says in words why its figures cannot be computed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from pydantic import Field

from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import Prices
from ratchet.contracts.evidence import Evidence
from ratchet.contracts.model import Contract
from ratchet.contracts.score import NotComputable, Quantity
from ratchet.evaluation.arm import Arm, share
from ratchet.evaluation.compare import Comparison, Estimate, Segment, compare, share_estimate
from ratchet.evaluation.curves import Curve
from ratchet.evaluation.economics import (
    INCUMBENT,
    BreakEven,
    Cost,
    Investment,
    amortised_cost,
    break_even,
    break_even_interval,
    cost_floor,
    loaded_cost,
    run_cost,
    variable_cost,
)
from ratchet.evaluation.intervals import MIN_CLUSTERS, RESAMPLES, cluster_bootstrap
from ratchet.evaluation.reducers import pass_hat_k
from ratchet.evaluation.rows import EvaluationRow


class Latency(Contract):
    """Wall clock of valid episodes, in seconds."""

    p50: Quantity = Field(description="Median.")
    p95: Quantity = Field(description="95th percentile.")


class Scorecard(Evidence, owner="ratchet.evaluation"):
    """One policy on the held-out tasks."""

    name: str = Field(description="Name of the policy.")
    method: str = Field(description="What made it.")
    policy_digest: str = Field(description="Digest of weights and harness.")
    harness_digest: str = Field(description="Digest of the harness.")
    manifest_digest: str = Field(description="Digest of the manifest.")
    lock_digest: str = Field(description="Digest of the split lock.")
    evaluation: str = Field(description="Digest of the evaluation plan.")
    rows_digest: str = Field(description="Digest of the policy's rows.")
    incumbent_rows_digest: str | None = Field(description="Digest of the incumbent's rows; None for the incumbent.")
    prices_digest: str = Field(description="Digest of the price list.")
    n_tasks: int = Field(description="Held-out tasks.")
    n_repos: int = Field(description="Independent repos among them.")
    seeds: tuple[int, ...] = Field(description="Seeds of every task.")
    accepted_tasks: int = Field(description="Tasks accepted by the majority of their seeds.")
    acceptance: Estimate = Field(description="Share of tasks accepted by majority; the headline number.")
    mean_of_seeds: Estimate = Field(description="Mean over tasks of the share of accepted seeds.")
    pass_hat: tuple[Quantity, ...] = Field(description="pass^k for k = 1 to the number of seeds.")
    comparison: Comparison | None = Field(description="Against the incumbent; None for the incumbent.")
    segments: tuple[Segment, ...] = Field(description="Every segment.")
    tool_call_precision: Quantity = Field(description="Well-formed, permitted and successful calls over all calls.")
    reference_precision: Quantity = Field(
        description="Calls that match a reference call, over all calls of the tasks that carry some."
    )
    violations: int = Field(description="Policy rules broken in valid episodes.")
    violation_rate: Quantity = Field(description="The same per valid episode.")
    violations_by_rule: dict[str, int] = Field(description="The same by rule.")
    exploit_rate: Quantity = Field(description="Share of valid episodes that touched a honeypot.")
    exploits_by_kind: dict[str, int] = Field(description="Valid episodes that touched each kind of honeypot.")
    latency_s: Latency = Field(description="Wall clock of valid episodes.")
    tokens_per_run: Quantity = Field(description="Tokens read and sampled per run, retries included.")
    calls_per_run: Quantity = Field(description="Turns per valid episode: each is a tool call, well-formed or not.")
    invalid_tasks: int = Field(description="Tasks of which a seed stays invalid.")
    invalid_share: float = Field(description="The same as a share of the tasks.")
    void: str | None = Field(description="Why the evaluation is void, or None.")
    cost: Cost = Field(description="Complete cost.")
    curves: dict[str, Curve] = Field(description="Learning curves of the run that made the policy: (step, value).")


def scorecard(
    rows: Iterable[EvaluationRow],
    incumbent_rows: Iterable[EvaluationRow] | None,
    *,
    method: str,
    manifest_digest: str,
    lock_digest: str,
    prices: Prices,
    training: Investment,
    minimum_effect: float,
    name: str | None = None,
    curves: Mapping[str, Curve] | None = None,
    horizon_runs: int = 10_000,
    max_void_share: float = 0.01,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Scorecard:
    """Make the scorecard of one policy.

    Args:
        rows: all rows of the policy, one per task and seed (`RowStore.complete`).
        incumbent_rows: those of the incumbent in the same evaluation, or None where the policy is the incumbent.
        method: what made the policy.
        manifest_digest: of the experiment.
        lock_digest: of the split lock whose held-out tasks were run.
        prices: price list.
        training: what the policy's training cost.
        minimum_effect: smallest difference worth shipping.
        name: of the policy, where its rows were made under another name of the very same policy.
        curves: learning curves of the run that made the policy (`learning_curves`); None where it was not trained.
        horizon_runs: accepted runs that the training is spread over.
        max_void_share: share of tasks that may stay invalid.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        EvaluationError: rows are missing, double or mixed, or the arms did not run the same plan.
    """
    arm = Arm(rows, name)
    incumbent = None if incumbent_rows is None else Arm(incumbent_rows)
    void = arm.void(max_void_share) or (incumbent.void(max_void_share) if incumbent else None)
    comparison = None
    if incumbent:
        comparison = compare(
            arm,
            incumbent,
            minimum_effect=minimum_effect,
            max_void_share=max_void_share,
            resamples=resamples,
            seed=seed,
        )
    no_runs = "no valid episode"
    calls = sum(row.calls for row in arm.valid)
    rules = Counter(rule for row in arm.valid for rule in row.violations)
    kinds = Counter(kind for row in arm.valid for kind in row.exploits)
    guided = [row for row in arm.valid if row.matched_calls is not None]
    latencies = np.array([row.latency_s for row in arm.valid])
    return Scorecard.issue(
        name=arm.policy,
        method=method,
        policy_digest=arm.policy_digest,
        harness_digest=arm.harness_digest,
        manifest_digest=manifest_digest,
        lock_digest=lock_digest,
        evaluation=arm.evaluation,
        rows_digest=arm.digest,
        incumbent_rows_digest=incumbent.digest if incumbent else None,
        prices_digest=digest(prices),
        n_tasks=arm.n,
        n_repos=len(arm.clusters),
        seeds=arm.seeds,
        accepted_tasks=int(arm.majority.sum()),
        acceptance=Estimate.unknown(void) if void else share_estimate(arm, arm.majority, resamples, seed),
        mean_of_seeds=Estimate.unknown(void) if void else share_estimate(arm, arm.mean, resamples, seed),
        pass_hat=tuple(void or _pass_hat(arm, k) for k in range(1, len(arm.seeds) + 1)),
        comparison=comparison,
        segments=comparison.segments if comparison else _own_segments(arm),
        tool_call_precision=share(sum(row.ok_calls for row in arm.valid), calls, "no tool call was made"),
        reference_precision=_reference_precision(guided),
        violations=rules.total(),
        violation_rate=share(rules.total(), len(arm.valid), no_runs),
        violations_by_rule=dict(sorted(rules.items())),
        exploit_rate=share(sum(row.exploit for row in arm.valid), len(arm.valid), no_runs),
        exploits_by_kind=dict(sorted(kinds.items())),
        latency_s=Latency(p50=_quantile(latencies, 0.5), p95=_quantile(latencies, 0.95)),
        tokens_per_run=sum(row.tokens_in + row.tokens_out for row in arm.rows) / len(arm.rows),
        calls_per_run=share(calls, len(arm.valid), no_runs),
        invalid_tasks=arm.invalid_tasks,
        invalid_share=arm.invalid_tasks / arm.n,
        void=void.reason if void else None,
        cost=_cost(arm, incumbent, prices, training, horizon_runs, void, resamples, seed),
        curves=dict(curves or {}),
    )


def read_scorecard(data: bytes, source: str) -> Scorecard:
    """Reopen a stored scorecard. Raises IntegrityError where it was changed."""
    return Scorecard.reopen(data, source)


def _pass_hat(arm: Arm, k: int) -> Quantity:
    value = pass_hat_k(arm.outcomes, k)
    return NotComputable(reason=f"no task has {k} valid seeds") if math.isnan(value) else value


def _reference_precision(guided: list[EvaluationRow]) -> Quantity:
    """Precision of the calls against the reference calls of the tasks that carry some."""
    if not guided:
        return NotComputable(reason="no task carries reference calls")
    matched = sum(row.matched_calls or 0 for row in guided)
    return share(matched, sum(row.calls for row in guided), "no tool call was made")


def _quantile(values: np.ndarray, q: float) -> Quantity:
    return float(np.quantile(values, q)) if len(values) else NotComputable(reason="no valid episode")


def _own_segments(arm: Arm) -> tuple[Segment, ...]:
    return tuple(
        Segment(
            name=name,
            n=int((arm.segments == name).sum()),
            accepted=int(arm.majority[arm.segments == name].sum()),
            difference=INCUMBENT,
            mean_difference=INCUMBENT,
            p=INCUMBENT,
            p_holm=INCUMBENT,
            detectable_effect=INCUMBENT,
        )
        for name in sorted(set(arm.segments.tolist()))
    )


def _cost(
    arm: Arm,
    incumbent: Arm | None,
    prices: Prices,
    training: Investment,
    horizon_runs: int,
    void: NotComputable | None,
    resamples: int,
    seed: int,
) -> Cost:
    costs, accepted = _spent(arm, prices)
    total, runs = math.fsum(costs), int(accepted.sum())
    variable = void or variable_cost(total, runs)
    return Cost(
        currency=prices.currency,
        window_total=total,
        accepted_runs=runs,
        variable_per_accepted=variable,
        floor_per_accepted=cost_floor(total, runs),
        training=training.stage,
        training_cumulative=training.cumulative,
        training_beyond_incumbent=training.beyond_incumbent,
        loaded=loaded_cost(variable, training.cumulative, runs),
        amortised=amortised_cost(variable, training.cumulative, horizon_runs),
        horizon_runs=horizon_runs,
        break_even=_break_even(arm, incumbent, prices, training, variable, resamples, seed),
    )


def _break_even(
    arm: Arm,
    incumbent: Arm | None,
    prices: Prices,
    training: Investment,
    variable: Quantity,
    resamples: int,
    seed: int,
) -> BreakEven:
    if incumbent is None:
        return BreakEven(value=INCUMBENT, low=INCUMBENT, high=INCUMBENT)
    columns = (*_spent(arm, prices), *_spent(incumbent, prices))
    value = break_even(training.beyond_incumbent, variable_cost(math.fsum(columns[2]), columns[3].sum()), variable)
    clusters = len(arm.clusters)
    samples = cluster_bootstrap(arm.by_cluster(*columns), seed, resamples if clusters >= MIN_CLUSTERS else 1)
    return break_even_interval(training.beyond_incumbent, value, samples, clusters)


def _spent(arm: Arm, prices: Prices) -> tuple[np.ndarray, np.ndarray]:
    """Cost and accepted runs of each task."""
    costs = arm.per_run(lambda row: run_cost(row, prices)).sum(axis=1)
    return costs, np.nansum(arm.outcomes, axis=1)
