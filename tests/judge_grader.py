"""A grader for tests: a judge of the test's own, really calibrated on 120 texts that it grades as the labels say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from ratchet.contracts.environment import Deliverable, Task
from ratchet.contracts.judge import DriftRule
from ratchet.rewards.calibration.calibrate import calibrate
from ratchet.rewards.calibration.labels import Label
from ratchet.rewards.judges.base import Judgement
from ratchet.rewards.judges.grading import Grader
from ratchet.rewards.judges.rubric import Item, Rubric

QUALITY = Rubric(name="quality", version="1", question="Good?", policy="Good or not.", categories=("poor", "good"))
AT = datetime(2030, 1, 1, tzinfo=UTC)


class Reads:
    """Grades by what `good` says of the text; `faults` may raise, hang or answer for some texts."""

    batch = 8

    def __init__(self, good: Callable[[str], bool], rubric: Rubric = QUALITY, name: str = "reads") -> None:
        self.good, self.rubric, self.digest = good, rubric, name
        self.faults: Callable[[str], Any] = lambda text: None
        self.asked: list[str] = []

    def judge(self, items: Sequence[Item]) -> list[Judgement]:
        self.asked += [item.deliverable for item in items]
        return [self.faults(item.deliverable) or self._grade(item.deliverable) for item in items]

    def _grade(self, text: str) -> Judgement:
        category = self.rubric.categories[-1 if self.good(text) else 0]
        return Judgement(category=category, reason="read", cost_usd=0.0)


def grader_of(judge: Reads, texts: dict[str, str], item_of: Callable[[Task, Deliverable], Item]) -> Grader:
    """Calibrate a judge on copies of texts, given with the category that an expert would give, and put it to work."""
    works = [(f"{text}\n# copy {number}", category) for number in range(60) for text, category in texts.items()]
    items = {str(at): Item(item_id=str(at), task="t", deliverable=text) for at, (text, _) in enumerate(works)}
    labels = [
        Label(
            item_id=str(at), rubric=judge.rubric.name, rubric_version=judge.rubric.version, category=category,
            rater="expert", at=AT, split="calibration",
        )
        for at, (_, category) in enumerate(works)
    ]  # fmt: skip
    found = calibrate(judge, items, labels, DriftRule(), at=AT)
    judge.asked.clear()
    return Grader(judge, found, item_of)
