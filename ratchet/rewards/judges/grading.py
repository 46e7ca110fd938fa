"""The judge's grade of an episode, and the only way to one: a judge that is calibrated, held to it at every grade."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ratchet.contracts.environment import Deliverable, Task
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.calibration.calibrate import JudgeCalibration
from ratchet.rewards.judges.base import Judge, Memory, judge_all, score_of
from ratchet.rewards.judges.rubric import Item

ItemOf = Callable[[Task, Deliverable], Item]


class Grade(NamedTuple):
    """What a judge says about one deliverable, with the evidence that it may say so."""

    score: Scored | Invalid
    judge_digest: str
    calibration: JudgeCalibration


class Grader:
    """A calibrated judge at work. Safe to call from several threads."""

    def __init__(
        self, judge: Judge, calibration: JudgeCalibration, item_of: ItemOf, *, memory: Memory | None = None
    ) -> None:
        """Raise RatchetError where the calibration is another judge's or did not pass.

        Args:
            judge: the judge.
            calibration: what its grades are worth.
            item_of: what the judge sees of a deliverable.
            memory: what it judged before; without it nothing is judged ahead.
        """
        calibration.require(judge.digest)
        self.judge, self.calibration, self.item_of, self.memory = judge, calibration, item_of, memory

    def ahead(self, works: Iterable[tuple[Task, Deliverable]]) -> None:
        """Judge many at once, in batches, so that `grade` finds them remembered. What fails is tried again there."""
        if self.memory is None:
            return
        items = []
        for work in works:
            # What cannot be shown is invalid there, with its reason; here it must not cost the others their batch.
            with contextlib.suppress(Exception):
                items.append(self.item_of(*work))
        judge_all(self.judge, items, memory=self.memory)

    def grades(self, items: Sequence[Item]) -> list[Grade]:
        """Grade items as they are, in order and in batches."""
        judged = judge_all(self.judge, items, memory=self.memory)
        rubric, identity = self.judge.rubric, self.judge.digest
        return [Grade(score_of(one, rubric), identity, self.calibration) for one in judged]

    def grade(self, task: Task, deliverable: Deliverable) -> Grade:
        """Grade one deliverable. What goes wrong makes the grade invalid."""
        try:
            item = self.item_of(task, deliverable)
        except Exception as error:  # what was handed in may be anything
            reason = f"judge {self.judge.rubric.name}: {type(error).__name__}: {error}"
            return Grade(Invalid(reason=reason), self.judge.digest, self.calibration)
        return self.grades([item])[0]
