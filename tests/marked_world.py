"""Episodes of which every deliverable names its task and seed in a comment, so that a judge can fail for one of them.

A comment is no change of the code: tests, gates and exploits say the same with it.
"""

from __future__ import annotations

import re
from typing import Any

from faults import Faulty, FaultyEpisode
from judge_grader import Reads, grader_of

from ratchet.contracts.environment import Deliverable, Task
from ratchet.environments.repair import RepairEnvironment
from ratchet.environments.repair.catalogue import SOLUTION
from ratchet.environments.repair.labelling import EDIT_QUALITY, item_of
from ratchet.rewards.judges.grading import Grader

MARK = re.compile(r"^\+# episode (\S+) (\d+)$", re.M)
JUDGE: dict[str, Any] = {"rubric": "edit_quality", "weight": 0.5}


class MarkedEpisode(FaultyEpisode):
    def deliverable(self) -> Deliverable:
        found = super().deliverable()
        marked = f"{found.files[SOLUTION].rstrip()}\n# episode {self.task.task_id} {self.seed}\n"
        return found.model_copy(update={"files": {**found.files, SOLUTION: marked}})


class Marked(Faulty):
    """The environment `repair`, marking what is handed in."""

    def __init__(self, inner: RepairEnvironment) -> None:
        super().__init__(inner, {})

    def open(self, task: Task, seed: int) -> FaultyEpisode:
        return MarkedEpisode(self, task, seed)


def episode_of(text: str) -> tuple[str, int]:
    """Task and seed of what a judge is shown."""
    found = MARK.search(text)
    assert found is not None, text
    return found[1], int(found[2])


def takes_a_side(text: str) -> bool:
    """A grade that depends on the work alone, and is good about as often as not."""
    return sum(map(ord, MARK.sub("", text))) % 2 == 0


def marking_grader() -> Grader:
    """A calibrated judge of marked work, without faults at first."""
    # Calibrated on plain texts: here its faults are tried, not its sense.
    judge = Reads(lambda text: "+b" in text, EDIT_QUALITY)
    found = grader_of(judge, {"-a\n+b": "good", "-a\n+c": "poor"}, item_of)
    judge.good = takes_a_side
    return found
