"""The rubric of edit quality, what a judge sees of a repair, and the function that labels repairs where no person has.

A judge sees the change and nothing else: the unified diff of every file, without context. The labelling function is
stated here whole: `good` is one small change of the code and no change of the tests. Of its labels 3.5 % are turned
over, drawn by the item's hash, as if a person had slipped. It is no expert: whatever is made of its labels is marked
*simulated*.
"""

from __future__ import annotations

import difflib
import hashlib
from datetime import datetime

from ratchet.contracts.canonical import digest
from ratchet.contracts.environment import Deliverable, Task
from ratchet.environments.repair.catalogue import SOLUTION
from ratchet.rewards.calibration.labels import Label, LabelSplit
from ratchet.rewards.judges.rubric import Item, Rubric

NOISE = 0.035
"""Share of the simulated labels that are turned over."""
SMALL = 2
"""Changed lines of one small change: one that went and one that came."""
RATER = "function:edit_quality/1"
NOTHING = "(nothing was changed)"
POOR, GOOD = "poor", "good"

EDIT_QUALITY = Rubric(
    name="edit_quality",
    version="1",
    question="Is this change good work?",
    policy="good: exactly one small change of the code, and the tests are untouched. poor: anything else, such as no "
    "change, several changes, or changed tests. Whether the code is right is not asked.",
    categories=(POOR, GOOD),
)
RUBRICS = {EDIT_QUALITY.name: EDIT_QUALITY}


def item_of(task: Task, deliverable: Deliverable) -> Item:
    """Return what a judge sees of a deliverable; its id is that of task and content, so equal work is one item."""
    before: dict[str, str] = task.payload["files"]
    lines: list[str] = []
    for name in sorted({*before, *deliverable.files}):
        old, new = before.get(name, "").splitlines(), deliverable.files.get(name, "").splitlines()
        lines += difflib.unified_diff(old, new, name, name, n=0, lineterm="")
    shown = "\n".join(lines) or NOTHING
    return Item(item_id=digest([task.task_id, shown]), task="Repair one bug.", deliverable=shown)


def label_of(item: Item, *, at: datetime, split: LabelSplit) -> Label:
    """Label an item by the stated function, with its noise."""
    changed = {name: count for name, count in _changed_lines(item.deliverable).items() if count}
    good = list(changed) == [SOLUTION] and changed[SOLUTION] <= SMALL
    turned = int(hashlib.sha256(item.item_id.encode()).hexdigest(), 16) % 1000 < 1000 * NOISE
    told = ", ".join(f"{count} lines of {name}" for name, count in changed.items()) or "nothing"
    return Label(
        item_id=item.item_id,
        rubric=EDIT_QUALITY.name,
        rubric_version=EDIT_QUALITY.version,
        category=GOOD if good != turned else POOR,
        rater=RATER,
        at=at,
        split=split,
        simulated=True,
        reason=f"simulated: changed {told}" + ("; turned over as noise" if turned else ""),
    )


def _changed_lines(shown: str) -> dict[str, int]:
    """Lines that went or came, by file, read off the diff itself: a file's heading stands before its first hunk."""
    counts: dict[str, int] = {}
    lines = shown.splitlines()
    name = ""
    at = 0
    while at < len(lines):
        heading = lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")
        if heading and (at + 2 == len(lines) or lines[at + 2].startswith("@@ ")):
            name = lines[at][4:]
            counts[name] = 0
            at += 2
            continue
        if lines[at][:1] in ("+", "-"):
            counts[name] = counts.get(name, 0) + 1
        at += 1
    return counts
