"""What happens to a judge after its calibration: looks at fresh labels, the freeze, and the door of the training.

A fresh label is one on a calibration item that neither a calibration nor an earlier look has used. A look waits until
there are enough of them, judges them and the anchors without memory, and appends what the drift rule makes of it. A
freeze holds until a recalibration. Works on which judge and experts differ go to the experts in `judge_queue`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import AwareDatetime, Field

from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.model import Contract
from ratchet.contracts.score import NotComputable
from ratchet.errors import TrainingError
from ratchet.loop import judge as judges
from ratchet.loop.context import Run
from ratchet.rewards.calibration.agreement import table
from ratchet.rewards.calibration.calibrate import JudgeCalibration, majority
from ratchet.rewards.calibration.drift import DriftCheck, anchor_shift, check
from ratchet.rewards.calibration.labels import Label, latest
from ratchet.rewards.compose import judge_counts
from ratchet.rewards.judges.base import Judge, Memory, judge_all
from ratchet.rewards.judges.grading import Grader
from ratchet.rewards.judges.rubric import Item
from ratchet.rights import recheck, reopen


class Look(Contract):
    """One look at the judge, as stored: the check, what it rests on, and the anchors."""

    check: DriftCheck = Field(description="What the rule says.")
    items: tuple[str, ...] = Field(description="Items whose labels this look has used up.")
    invalid: int = Field(ge=0, description="Items among them that the judge could not grade.")
    simulated: bool = Field(description="Whether any of the labels was made by a function.")
    anchors: int = Field(ge=0, description="Anchor items that were judged again.")
    became_right: int = Field(ge=0, description="Anchors that the judge had wrong at calibration and has right now.")
    became_wrong: int = Field(ge=0, description="Anchors the other way round.")
    anchor_p: float = Field(description="Two-sided p-value of that change (McNemar's exact test).")
    at: AwareDatetime = Field(description="When.")

    @property
    def told(self) -> str:
        """The look in one sentence."""
        kappa = self.check.kappa
        figure = str(kappa) if isinstance(kappa, NotComputable) else f"{kappa:.3f}"
        note = " simulated" if self.simulated else ""
        return (
            f"check {self.check.number}: {self.check.state}, kappa {figure} on {self.check.n}{note} labels, "
            f"statistic {self.check.statistic:.2f} nats; anchors {self.became_wrong} worse, {self.became_right} better "
            f"of {self.anchors} (p = {self.anchor_p:.3f})"
        )


def looks(run: Run) -> list[Look]:
    """Every look at the newest generation, in order."""
    names = run.store.names(run.name(judges.place(run, "drift")))
    return [Look.model_validate_json(run.store.read(name)) for name in sorted(names)]


def fresh_labels(run: Run) -> list[Label]:
    """Labels on calibration items that nothing has used yet."""
    used = judges.spent_before(run) | {one.item_id for one in judges.chosen_labels(run, "calibration")}
    used |= {name for look in looks(run) for name in look.items}
    return [one for one in judges.standing(run) if one.split == "calibration" and one.item_id not in used]


def look(run: Run) -> Look | None:
    """Look at the judge, where it is calibrated and enough fresh labels are there; the look is appended."""
    found = judges.open_calibration(run)
    if found is None or not found.passed:
        return None
    rubric, items = judges.rubric_of(run), judges.corpus(run).items
    fresh = [label for label in latest(fresh_labels(run)) if label.item_id in items]
    truth = majority(fresh)
    if len(truth) < found.rule.min_labels:
        return None
    judge, before = judges.open_judge(run), looks(run)
    # Without memory: it would answer for a judge that has changed behind its name.
    judged = judge_all(judge, [items[name] for name in truth])
    pairs = [(truth[name], one.category) for name, one in zip(truth, judged, strict=True) if one.category is not None]
    counts = table([one for one, _ in pairs], [other for _, other in pairs], rubric.categories)
    calibrated = table([], [], rubric.categories) + found.agreement.table
    made = Look(
        check=check(found.rule, calibrated, before[-1].check if before else None, counts),
        items=tuple(truth),
        invalid=len(truth) - len(pairs),
        simulated=found.simulated or any(label.simulated for label in fresh),
        at=run.now(),
        **_anchors(run, judge, items),
    )
    name = run.name(judges.place(run, "drift", f"{made.check.number:06d}.json"))
    run.store.create(name, canonical_json(made).encode())
    return Look.model_validate_json(run.store.read(name))


def _anchors(run: Run, judge: Judge, items: Mapping[str, Item]) -> dict[str, Any]:
    """The anchors judged again, without memory."""
    before = json.loads(run.store.read(run.name(judges.place(run, "anchors.json"))))
    truth = majority(latest(judges.chosen_labels(run, "anchor")))
    names = [name for name, category in before.items() if category is not None and name in items and name in truth]
    now = judge_all(judge, [items[name] for name in names])
    both = [(name, one.category) for name, one in zip(names, now, strict=True) if one.category is not None]
    shift = anchor_shift([truth[n] for n, _ in both], [before[n] for n, _ in both], [category for _, category in both])
    return {
        "anchors": shift.items,
        "became_right": shift.became_right,
        "became_wrong": shift.became_wrong,
        "anchor_p": shift.p_value,
    }


def require_calibrated(run: Run) -> JudgeCalibration | None:
    """Return the calibration that the judge of the reward counts by; None where no judge counts.

    Raises:
        RatchetError: it did not pass.
        TrainingError: there is none yet, or the judge is frozen.
        RightsError: the right to judge what it was calibrated on has ended.
    """
    spec = run.manifest.reward
    if not judge_counts(spec):
        return None
    found = _calibration(run)
    seen = looks(run)
    if seen and seen[-1].check.state == "freeze":
        raise TrainingError(
            f"judge of {found.rubric!r}",
            seen=f"FROZEN, {seen[-1].told}",
            rule="a judge that has drifted has no weight, and training that it pays stops",
            remedy="run the job recalibrate_judge, with fresh labels, or set reward.judge.weight to 0",
        )
    return found


def _calibration(run: Run, of: int | None = None) -> JudgeCalibration:
    """The calibration of a generation, the newest by default, where it passed."""
    found = judges.open_calibration(run, of=of)
    if found is None:
        raise TrainingError(
            f"judge of {judges.section_of(run).rubric!r}",
            seen="no calibration",
            rule="only a calibrated judge has weight in the reward",
            remedy="run the asset judge_calibration first",
        )
    found.require(found.judge_digest)
    return found


def refuse_ended(run: Run, of: int | None = None) -> None:
    """Raise RightsError where the right to judge what a generation of the judge was calibrated on has ended."""
    used = json.loads(run.store.read(run.name(judges.place(run, "labels.json", of=of))))["dataset"]
    name = run.name("datasets", f"{used}.json")
    recheck(run.rights, reopen(run.store.read(name), name), run.now())


def grader_of(run: Run) -> Grader | None:
    """The judge as training is paid by it; None where no judge has weight. Raises as `require_calibrated`."""
    return None if require_calibrated(run) is None else grader(run, judges.memory_of(run))


def grader(run: Run, memory: Memory, of: int | None = None) -> Grader:
    """A generation of the judge at work, the newest by default: calibrated, frozen since or not.

    Raises:
        RatchetError: it was not calibrated.
        RightsError: the right to judge what it was calibrated on has ended.
    """
    found = _calibration(run, of)
    refuse_ended(run, of)
    return Grader(judges.open_judge(run, of), found, judges.item_of(run), memory=memory)
