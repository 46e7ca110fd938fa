"""Compare any two policies of one evaluation: paired, clustered by repo, overall and by segment.

The figure that the gate uses is the paired cluster bootstrap of mean-of-seeds differences; exact McNemar on majority
acceptance stands beside it, and decides by segment.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field
from scipy.special import ndtri

from ratchet.contracts.model import Contract
from ratchet.contracts.score import NotComputable, Quantity
from ratchet.evaluation.arm import Arm
from ratchet.evaluation.intervals import (
    FEW_CLUSTERS,
    MIN_CLUSTERS,
    RESAMPLES,
    bootstrap_p_above,
    clopper_pearson,
    cluster_bootstrap,
    percentile_interval,
)
from ratchet.evaluation.paired import discordance, holm, mcnemar, mcnemar_regression
from ratchet.evaluation.power import detectable_effect
from ratchet.evaluation.reducers import Floats

EXACT_BELOW = 30
"""Fewer tasks than this get the exact interval."""


class Estimate(Contract):
    """A figure with its 95 % interval."""

    value: Quantity = Field(description="The estimate.")
    low: Quantity = Field(description="Lower bound.")
    high: Quantity = Field(description="Upper bound.")
    method: str = Field(description="How the interval was made.")

    @classmethod
    def unknown(cls, reason: NotComputable) -> Estimate:
        """An estimate of nothing."""
        return cls(value=reason, low=reason, high=reason, method="none")


class PairedDifference(Contract):
    """Difference of mean-of-seeds acceptance on the same tasks, candidate minus reference."""

    value: Quantity = Field(description="Mean over tasks of the difference, in [-1, 1].")
    low: Quantity = Field(description="Lower bound of the 95 % interval.")
    high: Quantity = Field(description="Upper bound.")
    p: Quantity = Field(description="Two-sided p of no difference.")
    minimum_effect: float = Field(description="Smallest difference worth shipping.")
    p_above_minimum: Quantity = Field(description="One-sided p of a difference of at most the minimum effect.")
    detectable_effect: Quantity = Field(description="Found with 80 % power: 2.8 of the standard errors that were seen.")


class Segment(Contract):
    """One slice of the tasks."""

    name: str = Field(description="Segment.")
    n: int = Field(description="Its tasks.")
    accepted: int = Field(description="Tasks accepted by majority.")
    difference: Quantity = Field(description="Difference of majority acceptance, candidate minus reference.")
    mean_difference: Quantity = Field(description="Difference of mean-of-seeds acceptance over its tasks.")
    regressed: int | None = Field(
        default=None, description="Tasks that the reference solves and the candidate does not."
    )
    gained: int | None = Field(default=None, description="The reverse.")
    p: Quantity = Field(description="One-sided exact McNemar: small where the candidate regressed.")
    p_holm: Quantity = Field(description="The same, corrected for the number of segments (Holm).")
    detectable_effect: Quantity = Field(description="Drop found with 80 % power at Holm's first step.")


class Comparison(Contract):
    """A policy against a reference policy."""

    candidate: str = Field(description="Name of the policy.")
    candidate_digest: str = Field(description="Its digest.")
    reference: str = Field(description="Name of the policy it is compared with.")
    reference_digest: str = Field(description="Its digest.")
    clusters: int = Field(description="Independent repos.")
    paired_difference: PairedDifference = Field(description="Difference of means of seeds; the gate's figure.")
    majority_difference: Estimate = Field(description="Difference of majority acceptance.")
    regressed: int = Field(description="Tasks lost by majority.")
    gained: int = Field(description="Tasks won by majority.")
    mcnemar_p: Quantity = Field(description="Two-sided exact McNemar on majority acceptance.")
    segments: tuple[Segment, ...] = Field(description="Every segment, by name.")


def compare(
    candidate: Arm,
    reference: Arm,
    *,
    minimum_effect: float = 0.0,
    max_void_share: float = 0.01,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compare two policies that ran the same plan.

    Args:
        candidate: rows of the policy.
        reference: rows of the policy it is compared with: the incumbent, or another candidate.
        minimum_effect: smallest difference worth shipping, in [0, 1].
        max_void_share: share of tasks that may stay invalid in either arm.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        EvaluationError: the arms did not run the same plan.
    """
    candidate.refuse_unlike(reference)
    void = candidate.void(max_void_share) or reference.void(max_void_share)
    lost, won = discordance(candidate.majority, reference.majority)
    return Comparison(
        candidate=candidate.policy,
        candidate_digest=candidate.policy_digest,
        reference=reference.policy,
        reference_digest=reference.policy_digest,
        clusters=len(candidate.clusters),
        paired_difference=_paired(candidate, reference, void, minimum_effect, resamples, seed),
        majority_difference=_majority(candidate, reference, void, resamples, seed),
        regressed=lost,
        gained=won,
        mcnemar_p=void or mcnemar(lost, won),
        segments=_segments(candidate, reference, void),
    )


def share_estimate(arm: Arm, values: Floats, resamples: int, seed: int) -> Estimate:
    """Mean of a figure of tasks in [0, 1], with the interval that its size and value ask for.

    The cluster bootstrap; Clopper-Pearson under 30 tasks, under 5 repos, or at exactly 0 % and 100 %.

    Args:
        arm: whose tasks and clusters they are.
        values: `(tasks,)`; NaN is left out.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    held = ~np.isnan(values)
    n, accepted = int(held.sum()), float(np.nansum(values))
    if n == 0:
        return Estimate.unknown(NotComputable(reason="no task has a valid run"))
    if n < EXACT_BELOW or len(arm.clusters) < MIN_CLUSTERS or accepted in (0.0, float(n)):
        low, high = clopper_pearson(accepted, n)
        return Estimate(value=accepted / n, low=low, high=high, method="clopper-pearson")
    low, high = percentile_interval(_ratio(arm, np.nan_to_num(values), held, resamples, seed), len(arm.clusters))
    return Estimate(value=accepted / n, low=low, high=high, method="cluster bootstrap")


def _ratio(arm: Arm, values: Floats, held: Floats, resamples: int, seed: int) -> Floats:
    sums = cluster_bootstrap(arm.by_cluster(values, held), seed, resamples)
    sums = sums[sums[:, 1] > 0]
    return np.asarray(sums[:, 0] / sums[:, 1])


def _paired(
    candidate: Arm, reference: Arm, void: NotComputable | None, minimum_effect: float, resamples: int, seed: int
) -> PairedDifference:
    difference = candidate.mean - reference.mean
    held = ~np.isnan(difference)
    n, clusters = int(held.sum()), len(candidate.clusters)
    if void or n == 0:
        reason = void or NotComputable(reason="no task has a valid run in both arms")
        names = ("value", "low", "high", "p", "p_above_minimum", "detectable_effect")
        return PairedDifference(minimum_effect=minimum_effect, **dict.fromkeys(names, reason))
    values = np.nan_to_num(difference)
    value = float(values.sum() / n)
    if clusters < MIN_CLUSTERS:
        unknown = dict.fromkeys(("low", "high", "p", "p_above_minimum", "detectable_effect"), FEW_CLUSTERS)
        return PairedDifference(value=value, minimum_effect=minimum_effect, **unknown)
    samples = _ratio(candidate, values, held, resamples, seed)
    low, high = percentile_interval(samples, clusters)
    above, below = bootstrap_p_above(samples, 0.0, clusters), bootstrap_p_above(-samples, 0.0, clusters)
    return PairedDifference(
        value=value,
        low=low,
        high=high,
        p=min(1.0, 2 * min(above, below)),
        minimum_effect=minimum_effect,
        p_above_minimum=bootstrap_p_above(samples, minimum_effect, clusters),
        detectable_effect=float(np.std(samples) * (ndtri(0.975) + ndtri(0.8))),
    )


def _majority(candidate: Arm, reference: Arm, void: NotComputable | None, resamples: int, seed: int) -> Estimate:
    if void:
        return Estimate.unknown(void)
    difference = candidate.majority - reference.majority
    value = float(difference.mean())
    if len(candidate.clusters) < MIN_CLUSTERS:
        return Estimate(value=value, low=FEW_CLUSTERS, high=FEW_CLUSTERS, method="none")
    samples = _ratio(candidate, difference, np.ones(candidate.n), resamples, seed)
    low, high = percentile_interval(samples, len(candidate.clusters))
    return Estimate(value=value, low=low, high=high, method="paired cluster bootstrap")


def _segments(candidate: Arm, reference: Arm, void: NotComputable | None) -> tuple[Segment, ...]:
    names = sorted(set(candidate.segments.tolist()))
    counts = [
        discordance(candidate.majority[candidate.segments == name], reference.majority[candidate.segments == name])
        for name in names
    ]
    p_values = [mcnemar_regression(*count) for count in counts]
    # A segment alone has too few discordant tasks to estimate their share, so all tasks lend theirs.
    share = sum(sum(count) for count in counts) / candidate.n
    segments = []
    for name, count, p, adjusted in zip(names, counts, p_values, holm(p_values), strict=True):
        mine = candidate.segments == name
        n = int(mine.sum())
        segments.append(
            Segment(
                name=name,
                n=n,
                accepted=int(candidate.majority[mine].sum()),
                difference=void or (count.gained - count.regressed) / n,
                mean_difference=void or _mean_difference(candidate.mean[mine] - reference.mean[mine]),
                regressed=count.regressed,
                gained=count.gained,
                p=void or p,
                p_holm=void or adjusted,
                detectable_effect=void or detectable_effect(n, share, alpha=0.05 / len(names), one_sided=True),
            )
        )
    return tuple(segments)


def _mean_difference(differences: Floats) -> Quantity:
    held = differences[~np.isnan(differences)]
    return float(held.mean()) if len(held) else NotComputable(reason="no task has a valid run in both arms")
