"""Calibration: a judge held against the experts' labels, and the door through which its grades may count.

The evidence names the judge and the labels by digest: another model, prompt or rubric version is another judge and
needs another calibration. Made from simulated labels it says so. Passing takes enough labels, a kappa that can be
computed and reaches the floor, few invalid judgements, and no bias that an audit has shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import AwareDatetime, Field

from ratchet.contracts.canonical import digest
from ratchet.contracts.evidence import Evidence
from ratchet.contracts.judge import DriftRule
from ratchet.contracts.score import NotComputable, Quantity, total
from ratchet.errors import RatchetError
from ratchet.rewards.calibration.agreement import Agreement, agreement, alpha
from ratchet.rewards.calibration.labels import Label, latest
from ratchet.rewards.judges.base import Judge, Memory, judge_all
from ratchet.rewards.judges.bias import BiasReport
from ratchet.rewards.judges.rubric import Item

MAX_INVALID_SHARE = 0.05


class JudgeCalibration(Evidence, owner="ratchet.rewards"):
    """What a judge's grades are worth, as of a time."""

    judge_digest: str = Field(description="Identity of the judge.")
    rubric: str = Field(description="Rubric by name.")
    rubric_version: str = Field(description="Its version.")
    labels_digest: str = Field(description="Digest of the labels that were used.")
    simulated: bool = Field(description="Whether any of the labels was made by a function and not by a person.")
    raters: tuple[str, ...] = Field(description="Who labelled, sorted.")
    experts_alpha: Quantity = Field(description="Krippendorff's alpha between the experts themselves.")
    agreement: Agreement = Field(description="Experts against judge.")
    invalid: int = Field(ge=0, description="Items that the judge could not grade.")
    cost_usd: Quantity = Field(description="What the judgements cost.")
    rule: DriftRule = Field(description="Thresholds that it was held against.")
    biased: tuple[str, ...] = Field(description="Biases that an audit has shown.")
    audited: bool = Field(description="Whether its biases were audited.")
    failures: tuple[str, ...] = Field(description="Why it is not calibrated; empty where it is.")
    at: AwareDatetime = Field(description="When.")

    @property
    def passed(self) -> bool:
        """Whether the judge's grades may count."""
        return not self.failures

    def require(self, judge_digest: str) -> None:
        """Open the door for this judge alone. Raises RatchetError where it is another one, or not calibrated."""
        name = f"judge of {self.rubric!r}"
        if judge_digest != self.judge_digest:
            raise RatchetError(
                name,
                seen=judge_digest[:12],
                rule=f"calibrated is {self.judge_digest[:12]}; another model, prompt or rubric is another judge",
                remedy="calibrate this one",
            )
        if self.failures:
            raise RatchetError(
                name,
                seen="; ".join(self.failures),
                rule="only a calibrated judge has weight",
                remedy="mend judge or rubric, collect labels, and calibrate again",
            )


def calibrate(
    judge: Judge,
    items: Mapping[str, Item],
    labels: Sequence[Label],
    rule: DriftRule,
    *,
    at: AwareDatetime,
    bias: BiasReport | None = None,
    memory: Memory | None = None,
    seed: int = 0,
) -> JudgeCalibration:
    """Judge the calibration items and compare with the experts.

    Args:
        judge: the judge.
        items: items by id.
        labels: labels by the judge's rubric version; those of the calibration split are used, each rater's last word.
        rule: thresholds.
        at: now.
        bias: the audits of this very judge.
        memory: what was judged before.
        seed: of the bootstrap.

    Raises:
        RatchetError: a labelled item is missing, or the bias report is another judge's.
    """
    rubric = judge.rubric
    used = latest(label for label in labels if label.split == "calibration")
    truth = majority(used)
    missing = sorted(set(truth) - set(items))
    if missing or (bias is not None and bias.judge_digest != judge.digest):
        raise RatchetError(
            f"calibration of {rubric.name!r}",
            seen=missing[:3] or "a bias report of another judge",
            rule="every labelled item and the audits of this judge must be there",
            remedy="restore the items, or audit this judge",
        )
    judged = judge_all(judge, [items[name] for name in truth], memory=memory)
    pairs = [
        (expert, one.category) for expert, one in zip(truth.values(), judged, strict=True) if one.category is not None
    ]
    found = agreement([one for one, _ in pairs], [other for _, other in pairs], rubric.categories,
                      ordered=rubric.ordered, seed=seed)  # fmt: skip
    invalid = len(truth) - len(pairs)
    biased = bias.biased if bias else ()
    return JudgeCalibration.issue(
        judge_digest=judge.digest,
        rubric=rubric.name,
        rubric_version=rubric.version,
        labels_digest=digest(sorted(digest(label) for label in used)),
        simulated=any(label.simulated for label in used),
        raters=tuple(sorted({label.rater for label in used})),
        experts_alpha=experts_alpha(used, rubric.categories),
        agreement=found,
        invalid=invalid,
        cost_usd=total(one.cost_usd for one in judged),
        rule=rule,
        biased=biased,
        audited=bias is not None,
        failures=tuple(_failures(found, invalid, len(truth), biased, rule)),
        at=at,
    )


def reopen_calibration(data: bytes, source: str) -> JudgeCalibration:
    """Read a stored calibration back. Raises IntegrityError where it was changed."""
    return JudgeCalibration.reopen(data, source)


def majority(labels: Sequence[Label]) -> dict[str, str]:
    """Return the category that most raters gave, by item; items without a majority are left out: experts disagree."""
    votes: dict[str, Counter[str]] = {}
    for label in labels:
        votes.setdefault(label.item_id, Counter())[label.category] += 1
    return {
        item: counts.most_common(1)[0][0]
        for item, counts in votes.items()
        if 2 * counts.most_common(1)[0][1] > counts.total()
    }


def experts_alpha(labels: Sequence[Label], categories: Sequence[str]) -> Quantity:
    """Krippendorff's alpha between the raters."""
    raters = sorted({label.rater for label in labels})
    if len(raters) < 2:
        return NotComputable(reason="one rater alone has labelled")
    given = {(label.rater, label.item_id): categories.index(label.category) for label in labels}
    names = sorted({label.item_id for label in labels})
    return alpha([[given.get((rater, name)) for name in names] for rater in raters])


def _failures(found: Agreement, invalid: int, items: int, biased: Sequence[str], rule: DriftRule) -> list[str]:
    failures = []
    if found.n < rule.min_labels:
        failures.append(f"{found.n} labels are fewer than {rule.min_labels}: insufficient")
    if isinstance(found.kappa, NotComputable):
        failures.append(f"kappa is {found.kappa}")
    elif found.kappa < rule.floor:
        failures.append(f"kappa {found.kappa:.2f} is under the floor of {rule.floor:.2f}")
    if invalid > MAX_INVALID_SHARE * items:
        failures.append(f"{invalid} of {items} items could not be graded")
    failures += [f"it is biased: {name}" for name in biased]
    return failures
