"""The share that a judge accepts, corrected for the judge's own errors.

Rogan and Gladen 1978: with true positive rate t and true negative rate s, the true share is
(observed + s - 1) / (t + s - 1). Both rates come from labels and are uncertain, so the interval draws all three from
their posteriors (Jeffreys priors) and takes percentiles. A judge that is no better than chance corrects nothing.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from ratchet.contracts.model import Contract
from ratchet.contracts.score import NotComputable, Quantity
from ratchet.rewards.calibration.agreement import Bounds, Counts

DRAWS = 20_000
MAX_USELESS = 0.01
"""Share of draws in which the judge may be no better than chance before the corrected share has no interval."""


class CorrectedShare(Contract):
    """An acceptance rate with and without the judge's errors."""

    observed: Quantity = Field(description="Share that the judge accepted.")
    corrected: Quantity = Field(description="Share that the experts would accept, between 0 and 1.")
    interval: Bounds | NotComputable = Field(description="95 % interval of the corrected share.")


def corrected_share(accepted: int, n: int, labels: Counts, *, seed: int = 0, draws: int = DRAWS) -> CorrectedShare:
    """Correct a share that a judge measured.

    Args:
        accepted: items that the judge accepted.
        n: items that it judged.
        labels: calibration counts, shape (2, 2): experts by row, judge by column, the positive category last.
        seed: of the draws.
        draws: how many.
    """
    if not n:
        nothing = NotComputable(reason="the judge judged nothing")
        return CorrectedShare(observed=nothing, corrected=nothing, interval=nothing)
    negatives, positives = labels.sum(axis=1)
    if not positives or not negatives:
        missing = NotComputable(reason="the labels hold one category alone: the judge's error rates are unknown")
        return CorrectedShare(observed=accepted / n, corrected=missing, interval=missing)
    sensitivity, specificity = labels[1, 1] / positives, labels[0, 0] / negatives
    if sensitivity + specificity <= 1:
        useless = NotComputable(reason="the judge is no better than chance on its labels")
        return CorrectedShare(observed=accepted / n, corrected=useless, interval=useless)
    rng = np.random.default_rng(seed)
    found = rng.beta(accepted + 0.5, n - accepted + 0.5, draws)
    hit = rng.beta(labels[1, 1] + 0.5, labels[1, 0] + 0.5, draws)
    spared = rng.beta(labels[0, 0] + 0.5, labels[0, 1] + 0.5, draws)
    useful = hit + spared > 1
    interval: Bounds | NotComputable
    if useful.mean() < 1 - MAX_USELESS:
        interval = NotComputable(reason="too few labels to tell the judge from chance")
    else:
        shares = np.clip((found + spared - 1)[useful] / (hit + spared - 1)[useful], 0, 1)
        low, high = np.quantile(shares, [0.025, 0.975])
        interval = Bounds(low=float(low), high=float(high))
    corrected = (accepted / n + specificity - 1) / (sensitivity + specificity - 1)
    return CorrectedShare(observed=accepted / n, corrected=float(np.clip(corrected, 0, 1)), interval=interval)
