"""Whether a calibrated judge still means what the experts mean, asked again and again over fresh labels.

A single reading under the floor is a WARN: at a true kappa of 0.86 and 120 labels that is about one honest check in
twenty. A FREEZE takes the judge's weight away, so it comes from a sequential test: a CUSUM (Page 1954) of the
log-likelihood ratio of agreement, kappa `drifted` against kappa `calibrated`. Under a kappa k the raters agree with
probability e + k (1 - e), where e is what chance gives for the marginals of the labels (those of the calibration and of
the check, pooled). It restarts at 0, so a long good past does not hide a drift; a FREEZE stays until a recalibration.
Between labels the frozen anchor items are judged again and compared with McNemar's exact test.

The `threshold` is set by simulation, not by a formula: `operating_characteristics` gives its figures, which the tests
hold and the documents show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ratchet.contracts.judge import DriftRule
from ratchet.contracts.model import Contract
from ratchet.contracts.score import NotComputable, Quantity
from ratchet.rewards.calibration.agreement import Counts, kappa

READINGS = 200
"""Simulated years per check of which the kappa itself is read, for the share of warnings."""
State = Literal["ok", "insufficient", "warn", "freeze"]
Table = tuple[tuple[int, ...], ...]


class DriftCheck(Contract):
    """One look at the judge."""

    number: int = Field(ge=1, description="How many checks there were since the calibration, this one included.")
    n: int = Field(ge=0, description="Fresh labels of this check.")
    kappa: Quantity = Field(description="Kappa of the fresh labels alone.")
    statistic: float = Field(ge=0, description="CUSUM after this check, in nats.")
    state: State = Field(description="What follows; a freeze stays one until a recalibration.")


def check(rule: DriftRule, calibration: Counts, previous: DriftCheck | None, fresh: Counts) -> DriftCheck:
    """Take in the fresh labels of one check.

    Args:
        rule: thresholds.
        calibration: counts of the calibration labels, shape (k, k), experts by row and judge by column.
        previous: the check before, or None after a calibration.
        fresh: counts of the labels that came in since; labels used once are not used again.
    """
    n = int(fresh.sum())
    before = previous.statistic if previous else 0.0
    statistic = max(0.0, before + float(_increments(rule, calibration, fresh[None])[0])) if n else before
    reading = kappa(fresh)
    state: State = "ok"
    if statistic >= rule.threshold or (previous and previous.state == "freeze"):
        state = "freeze"
    elif n < rule.min_labels:
        state = "insufficient"
    elif isinstance(reading, NotComputable) or reading < rule.floor:
        state = "warn"
    number = previous.number + 1 if previous else 1
    return DriftCheck(number=number, n=n, kappa=reading, statistic=statistic, state=state)


def _increments(rule: DriftRule, calibration: Counts, fresh: Counts) -> NDArray[np.float64]:
    """Log-likelihood ratio of the agreement in each table of `fresh`, shape (m, k, k), drifted over calibrated."""
    pooled = fresh + calibration
    whole = pooled.sum(axis=(-2, -1))
    chance = (pooled.sum(axis=-1) * pooled.sum(axis=-2)).sum(axis=-1) / whole**2
    good, bad = (chance + level * (1 - chance) for level in (rule.calibrated, rule.drifted))
    agreed = np.trace(fresh, axis1=-2, axis2=-1)
    others = fresh.sum(axis=(-2, -1)) - agreed
    # Where chance alone agrees always, both hypotheses say the same and the labels tell nothing.
    telling = chance < 1
    ratio = np.log(np.divide(1 - bad, 1 - good, out=np.ones_like(good), where=telling))
    return np.asarray(agreed * np.log(bad / good) + others * ratio)


class Characteristics(NamedTuple):
    """How a rule behaves over many simulated years."""

    frozen: float
    """Share of years with a freeze."""
    within: tuple[float, ...]
    """Share frozen by check 1, 2, ..."""
    warned: float
    """Share of checks with a reading under the floor."""


def operating_characteristics(
    rule: DriftRule,
    kappas: Sequence[float],
    *,
    labels: int = 120,
    prevalence: float = 0.5,
    years: int = 10_000,
    seed: int = 0,
) -> Characteristics:
    """Simulate a binary judge whose true kappa at each check is given, calibrated on as many labels at `calibrated`.

    Args:
        rule: the rule.
        kappas: true kappa at check 1, 2, ...
        labels: fresh labels per check, and calibration labels.
        prevalence: share of positives for both raters.
        years: simulated sequences.
        seed: of the generator.
    """
    rng = np.random.default_rng(seed)
    calibration = _drawn(rng, rule.calibrated, labels, prevalence, years)
    statistic, frozen, warned = np.zeros(years), np.zeros(years, dtype=bool), 0.0
    within = []
    for true in kappas:
        fresh = _drawn(rng, true, labels, prevalence, years)
        statistic = np.maximum(0.0, statistic + _increments(rule, calibration, fresh))
        frozen |= statistic >= rule.threshold
        within.append(float(frozen.mean()))
        readings = [kappa(one) for one in fresh[:READINGS]]
        warned += float(np.mean([isinstance(one, NotComputable) or one < rule.floor for one in readings]))
    return Characteristics(float(frozen.mean()), tuple(within), warned / len(kappas))


def _drawn(rng: np.random.Generator, true: float, labels: int, prevalence: float, years: int) -> Counts:
    chance = prevalence**2 + (1 - prevalence) ** 2
    apart = (1 - chance - true * (1 - chance)) / 2
    shares = [1 - prevalence - apart, apart, apart, prevalence - apart]
    return rng.multinomial(labels, shares, size=years).reshape(years, 2, 2).astype(np.float64)


class AnchorShift(NamedTuple):
    """The same judge on the same anchor items, before and now."""

    items: int
    became_right: int
    became_wrong: int
    p_value: float
    """Two-sided, exact (McNemar 1947)."""


def anchor_shift(reference: Sequence[str], before: Sequence[str], now: Sequence[str]) -> AnchorShift:
    """Compare two judgings of the frozen anchor items, which the experts labelled once.

    Args:
        reference: the experts' label of each item.
        before: the judge's at calibration.
        now: the judge's today.

    Raises:
        ValueError: they are not of one length.
    """
    from scipy.stats import binomtest

    right = wrong = 0
    for truth, old, new in zip(reference, before, now, strict=True):
        right += old != truth and new == truth
        wrong += old == truth and new != truth
    p_value = float(binomtest(right, right + wrong).pvalue) if right + wrong else 1.0
    return AnchorShift(len(reference), right, wrong, p_value)
