"""How far two raters, or several, agree beyond chance, and the figures without which that number misleads.

Covered: Cohen's kappa, plain and weighted, with the asymptotic interval and a bootstrap one; Krippendorff's alpha for
several raters with gaps; and the companions of a binary kappa: n, prevalence, agreement, true positive and true
negative rate. Where chance alone would agree always (one category is all there is) kappa is not computable, never 1
and never 0.

Sources: Cohen 1960 and 1968; Fleiss, Cohen and Everitt 1969 (variance); Krippendorff 2011 (alpha by coincidences).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtri

from ratchet.contracts.model import Contract
from ratchet.contracts.score import NotComputable, Quantity, combine
from ratchet.errors import RatchetError

Counts = NDArray[np.float64]
Weights = Literal["none", "linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]

RESAMPLES = 10_000
MAX_UNDEFINED = 0.01
"""Share of resamples in which kappa may be undefined before its bootstrap interval is."""
_ALWAYS = NotComputable(reason="chance alone agrees always: both raters use one and the same category")
_EMPTY = NotComputable(reason="there are no labels")


class Bounds(Contract):
    """An interval, in the unit of its estimate."""

    low: float = Field(description="Lower bound.")
    high: float = Field(description="Upper bound.")


class Agreement(Contract):
    """Two raters on the same items; the first is the reference (the expert), the second is tested (the judge)."""

    n: int = Field(ge=0, description="Items that both rated.")
    categories: tuple[str, ...] = Field(description="Categories, in their order.")
    table: tuple[tuple[int, ...], ...] = Field(
        description="Counts: a row per reference category, a column per judge's."
    )
    agreement: Quantity = Field(description="Share of items rated alike.")
    kappa: Quantity = Field(description="Cohen's kappa.")
    asymptotic: Bounds | NotComputable = Field(description="95 % interval of kappa by its asymptotic variance.")
    bootstrap: Bounds | NotComputable = Field(description="95 % percentile interval of kappa over resampled items.")
    weighted_kappa: Quantity = Field(description="Kappa with quadratic weights, for ordered categories.")
    prevalence: Quantity = Field(description="Share of the last category among the reference's ratings (binary only).")
    true_positive_rate: Quantity = Field(description="Share of the reference's positives that the judge finds.")
    true_negative_rate: Quantity = Field(description="Share of the reference's negatives that the judge finds.")


def agreement(
    reference: Sequence[Hashable],
    judge: Sequence[Hashable],
    categories: Sequence[Hashable],
    *,
    ordered: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Agreement:
    """Compare two raters.

    Args:
        reference: the reference's category of each item.
        judge: the judge's, in the same order.
        categories: all categories, in their order; of two, the last is the positive one.
        ordered: whether the order of the categories means something, so that the weighted kappa does.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        RatchetError: the raters rated other items, or used a category that is not listed.
    """
    counts = table(reference, judge, categories)
    two = NotComputable(reason=f"it needs two categories, and there are {len(categories)}")
    binary = len(categories) == 2
    n = counts.sum()
    return Agreement(
        n=int(n),
        categories=tuple(str(item) for item in categories),
        table=tuple(tuple(int(count) for count in row) for row in counts),
        agreement=_share(float(np.trace(counts)), float(n)),
        kappa=kappa(counts),
        asymptotic=asymptotic_interval(counts),
        bootstrap=bootstrap_interval(counts, resamples=resamples, seed=seed),
        weighted_kappa=kappa(counts, "quadratic") if ordered else NotComputable(reason="the categories have no order"),
        prevalence=_share(float(counts[-1].sum()), float(n)) if binary else two,
        true_positive_rate=_share(float(counts[1, 1]), float(counts[1].sum())) if binary else two,
        true_negative_rate=_share(float(counts[0, 0]), float(counts[0].sum())) if binary else two,
    )


def table(reference: Sequence[Hashable], judge: Sequence[Hashable], categories: Sequence[Hashable]) -> Counts:
    """Count pairs of ratings, shape (k, k): rows by the reference, columns by the judge. Raises as `agreement`."""
    place = {category: number for number, category in enumerate(categories)}
    foreign = sorted({str(item) for item in (*reference, *judge) if item not in place})
    if len(reference) != len(judge) or foreign:
        raise RatchetError(
            "ratings",
            seen=foreign[:3] or f"{len(reference)} and {len(judge)} ratings",
            rule=f"both raters rate the same items, in the categories {[str(item) for item in categories]}",
            remedy="pair the ratings by item, and list every category",
        )
    counts = np.zeros((len(place), len(place)))
    for row, column in zip(reference, judge, strict=True):
        counts[place[row], place[column]] += 1
    return counts


def kappa(counts: Counts, weights: Weights = "none") -> Quantity:
    """Cohen's kappa of a table of counts, shape (k, k); weighted by the distance of categories where asked (1968)."""
    if not counts.sum():
        return _EMPTY
    value = _kappas(counts[None], _credit(len(counts), weights))[0]
    return float(value) if np.isfinite(value) else _ALWAYS


def asymptotic_interval(counts: Counts, weights: Weights = "none", confidence: float = 0.95) -> Bounds | NotComputable:
    """Interval of kappa by its large-sample variance (Fleiss, Cohen and Everitt 1969, formula 13)."""
    value = kappa(counts, weights)
    if isinstance(value, NotComputable):
        return value
    spread = float(ndtri(0.5 + confidence / 2)) * float(np.sqrt(variance(counts, weights)))
    return Bounds(low=value - spread, high=value + spread)


def variance(counts: Counts, weights: Weights = "none") -> float:
    """Large-sample variance of kappa, not under independence. NaN where kappa is undefined."""
    shares, credit = counts / counts.sum(), _credit(len(counts), weights)
    rows, columns = shares.sum(axis=1), shares.sum(axis=0)
    by_row, by_column = credit @ columns, rows @ credit
    chance = float(rows @ credit @ columns)
    if chance >= 1:
        return float("nan")
    value = (float((shares * credit).sum()) - chance) / (1 - chance)
    spread = (shares * (credit - (by_row[:, None] + by_column[None, :]) * (1 - value)) ** 2).sum()
    whole = float(spread) - (value - chance * (1 - value)) ** 2
    return max(0.0, whole) / ((1 - chance) ** 2 * float(counts.sum()))


def bootstrap_interval(
    counts: Counts, weights: Weights = "none", *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Bounds | NotComputable:
    """Percentile interval of kappa over resampled items (Efron 1979): resampled tables are multinomial."""
    value = kappa(counts, weights)
    if isinstance(value, NotComputable):
        return value
    n = int(counts.sum())
    drawn = np.random.default_rng(seed).multinomial(n, (counts / n).ravel(), size=resamples)
    values = _kappas(drawn.reshape(resamples, *counts.shape).astype(float), _credit(len(counts), weights))
    defined = values[np.isfinite(values)]
    if len(defined) < (1 - MAX_UNDEFINED) * resamples:
        share = 1 - len(defined) / resamples
        return NotComputable(reason=f"kappa is undefined in {share:.0%} of the resamples: too few labels of a category")
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Bounds(low=float(low), high=float(high))


def alpha(ratings: Sequence[Sequence[float | None]], level: Level = "nominal") -> Quantity:
    """Krippendorff's alpha of several raters.

    Args:
        ratings: shape (raters, items); None where a rater did not rate the item. Categories are numbers.
        level: how far apart two categories are: `nominal` (equal or not), `ordinal` (by ranks), `interval`.
    """
    values = np.array([[np.nan if one is None else float(one) for one in row] for row in ratings], dtype=float)
    domain = np.unique(values[~np.isnan(values)])
    per_item = np.array([(values == one).sum(axis=0) for one in domain]).reshape(len(domain), -1).T.astype(float)
    per_item = per_item[per_item.sum(axis=1) >= 2]
    if not len(per_item):
        return NotComputable(reason="no item was rated by two raters")
    sizes = per_item.sum(axis=1)
    pairs = (per_item[:, :, None] * per_item[:, None, :]) - per_item[:, :, None] * np.eye(len(domain))
    coincidences = (pairs / (sizes - 1)[:, None, None]).sum(axis=0)
    totals = coincidences.sum(axis=1)
    distance = _distance(domain, totals, level)
    expected = float((np.outer(totals, totals) * distance).sum())
    if expected == 0:
        return NotComputable(reason="all raters use one and the same category: there is nothing to agree about")
    return 1 - (float(totals.sum()) - 1) * float((coincidences * distance).sum()) / expected


def _distance(domain: NDArray[np.float64], totals: NDArray[np.float64], level: Level) -> NDArray[np.float64]:
    if level == "nominal":
        return 1.0 - np.eye(len(domain))
    if level == "interval":
        return np.asarray((domain[:, None] - domain[None, :]) ** 2)
    # Ordinal: values between the two, the two themselves by half.
    middles = np.cumsum(totals) - totals / 2
    return np.asarray((middles[:, None] - middles[None, :]) ** 2)


def _kappas(tables: Counts, credit: Counts) -> NDArray[np.float64]:
    """Kappa of each table, shape (m, k, k); NaN where it is undefined."""
    shares = tables / tables.sum(axis=(1, 2), keepdims=True)
    rows, columns = shares.sum(axis=2), shares.sum(axis=1)
    chance = np.einsum("mi,ij,mj->m", rows, credit, columns)
    seen = (shares * credit).sum(axis=(1, 2))
    # Rounding can leave a chance of 1 a hair below it.
    defined = chance < 1 - 1e-12
    return np.divide(seen - chance, 1 - chance, out=np.full(len(tables), np.nan), where=defined)


def _credit(k: int, weights: Weights) -> Counts:
    """How much two categories count as agreement, shape (k, k): 1 on the diagonal."""
    if weights == "none":
        return np.eye(k)
    apart = np.abs(np.arange(k)[:, None] - np.arange(k)[None, :]) / max(k - 1, 1)
    return np.asarray(1 - (apart if weights == "linear" else apart**2))


def _share(part: float, whole: float) -> Quantity:
    if not whole:
        return NotComputable(reason="there are no labels to take a share of")
    return combine(lambda one, all_of: one / all_of, part, whole)
