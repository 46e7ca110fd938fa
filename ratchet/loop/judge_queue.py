"""Work for the experts: where judge and experts differ, and work that nobody has labelled; out as CSV, back as labels.

Both reasons stand side by side. The content of the work is read under its right when the queue is made, and is kept
nowhere: the CSV is the only copy.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import NamedTuple

from ratchet.contracts.canonical import digest
from ratchet.errors import RatchetError
from ratchet.loop import judge as judges
from ratchet.loop.context import Run, Stage, stage
from ratchet.loop.judge_drift import looks
from ratchet.rewards.calibration.calibrate import majority
from ratchet.rewards.calibration.labels import COLUMNS, Label, from_csv, latest
from ratchet.rewards.judges.base import judge_all

SHOWN = 120
"""Characters of a reason that are shown in Dagster."""
EXTRA = ("why", "judge_category", "judge_reason", "expert_category", "expert_reason", "experts", "labels_are", "work")


class Disagreement(NamedTuple):
    """One work that judge and experts grade differently, or that has no label yet."""

    item_id: str
    split: str
    why: str
    judge_category: str
    judge_reason: str
    expert_category: str
    expert_reason: str
    experts: str
    labels_are: str
    """`simulated` where the labelling function is the expert."""
    work: str


def disagreements(run: Run) -> list[Disagreement]:
    """Works of the newest calibration, and of the looks since, on which judge and experts differ."""
    if judges.open_calibration(run) is None:
        return []
    seen = {label.item_id for label in judges.chosen_labels(run, "calibration")}
    seen |= {name for look in looks(run) for name in look.items}
    return _queue(run, [label for label in judges.standing(run) if label.item_id in seen], "judge and experts differ")


def unlabelled(run: Run, number: int) -> list[Disagreement]:
    """Works of the calibration split that nobody has labelled, at most `number`, drawn by their ids."""
    labelled = {label.item_id for label in judges.labels_of(run).all()}
    items = judges.corpus(run).items
    names = [name for name in items if name not in labelled and judges.split_of(name) == "calibration"][:number]
    blank = Disagreement("", "calibration", "nobody has labelled it", "", "", "", "", "", "", "")
    return [blank._replace(item_id=name, work=items[name].deliverable) for name in names]


def to_csv(run: Run, rows: list[Disagreement]) -> str:
    """The queue as CSV: an expert fills in `category`, `rater` and `reason`; rows left open are passed over."""
    rubric, sink = judges.rubric_of(run), io.StringIO()
    writer = csv.DictWriter(sink, (*COLUMNS, *EXTRA), lineterminator="\n")
    writer.writeheader()
    filled = {"rubric": rubric.name, "rubric_version": rubric.version}
    for row in rows:
        writer.writerow({**filled, **{name: _inert(value) for name, value in row._asdict().items()}})
    return sink.getvalue()


def take_labels(run: Run, text: str, at: datetime) -> int:
    """Add the labels of a CSV; returns how many are new.

    Raises:
        RatchetError: naming the first row that is no label, or an item that the run does not know; nothing is added.
    """
    return add_labels(run, from_csv(text, rubric=judges.rubric_of(run), at=at))


def add_labels(run: Run, labels: list[Label]) -> int:
    """Add labels that experts gave to works of the run; returns how many are new.

    Raises:
        RatchetError: an item that the run does not know, or a category that the rubric has not; nothing is added.
    """
    known = judges.corpus(run).items
    foreign = sorted({label.item_id for label in labels} - set(known))
    if foreign:
        raise RatchetError(
            "labels",
            seen=[name[:12] for name in foreign[:3]],
            rule="every item must be one that agents of this experiment handed in",
            remedy="label the items of `ratchet judge queue`; none of the labels was added",
        )
    return judges.labels_of(run).add(labels)


def judge_disagreements(run: Run) -> Stage:
    """The queue as it stands, without the works themselves."""
    if run.manifest.reward.judge is None:
        return stage("judge_disagreements", True, judges.NONE, [])
    found = disagreements(run)
    rows = [
        {name: value[:SHOWN] for name, value in row._asdict().items() if name not in ("work", "why")} for row in found
    ]
    note = " (simulated labels)" if any(row.labels_are == "simulated" for row in found) else ""
    summary = f"judge and experts differ on {len(found)} works{note}; `ratchet judge queue FILE` writes them out"
    return stage("judge_disagreements", False, summary, digest(rows), rows, open=len(found))


def _queue(run: Run, labels: list[Label], why: str) -> list[Disagreement]:
    items = judges.corpus(run).items
    by_item: dict[str, list[Label]] = {}
    for label in latest(labels):
        by_item.setdefault(label.item_id, []).append(label)
    truth = {name: category for name, category in majority(latest(labels)).items() if name in items}
    memory = judges.memory_of(run)
    try:
        judged = judge_all(judges.open_judge(run), [items[name] for name in truth], memory=memory)
    finally:
        memory.close()
    return [
        Disagreement(
            item_id=name,
            split=by_item[name][0].split,
            why=why,
            judge_category=one.category or "invalid",
            judge_reason=one.reason or one.invalid or "",
            expert_category=truth[name],
            expert_reason="; ".join(label.reason for label in by_item[name] if label.category == truth[name]),
            experts=", ".join(label.rater for label in by_item[name]),
            labels_are="simulated" if any(label.simulated for label in by_item[name]) else "by persons",
            work=items[name].deliverable,
        )
        for name, one in zip(truth, judged, strict=True)
        if one.category != truth[name]
    ]


def _inert(value: str) -> str:
    """Keep a spreadsheet from taking text of a log for a formula."""
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
