"""The judge in the held-out evaluation: pinned once, so that one judge grades every arm, on every resumption.

Acceptance rests on verifiers, unless the manifest names the judge's rubric among its conditions. So a judge that only
pays, and is frozen or not calibrated when the evaluation opens, is left out of it with the reason; one that accepts
stops it. What it accepts is shown with its own errors corrected, and the gate asks whether it holds now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from ratchet.contracts.canonical import digest
from ratchet.errors import RatchetError
from ratchet.evaluation.rows import EvaluationRow
from ratchet.loop import judge as judges
from ratchet.loop.context import Run
from ratchet.loop.judge_drift import grader, looks, refuse_ended, require_calibrated
from ratchet.release.inputs import JudgeInput
from ratchet.rewards.calibration.agreement import table
from ratchet.rewards.calibration.correction import corrected_share
from ratchet.rewards.compose import judge_accepts, judge_counts, spec_digest
from ratchet.rewards.judges.base import Memory
from ratchet.rewards.judges.grading import Grader
from ratchet.store.heldout import PREFIX

PINNED = "evaluation_judge.json"


@contextmanager
def heldout_grader(run: Run) -> Iterator[Grader | None]:
    """The judge of the evaluation; None where none counts, or where the one that only pays held no longer.

    Raises:
        RatchetError: acceptance asks for its grade, and it is not calibrated or is frozen.
        RightsError: the right to judge what it was calibrated on has ended since the evaluation opened.
    """
    number = pinned(run)["generation"] if judge_counts(run.manifest.reward) else None
    if number is None:
        yield None
        return
    # What is said of held-out work is remembered where training does not read.
    with closing(Memory(run.home / PREFIX / "judgements.db")) as memory:
        yield grader(run, memory, of=number)


def pinned(run: Run) -> dict[str, Any]:
    """Generation and digest of the judge that grades the evaluation, None for none, and why; chosen once."""

    def choose() -> dict[str, Any]:
        try:
            require_calibrated(run)
            refuse_ended(run)
        except RatchetError as error:
            if judge_accepts(run.manifest.reward):
                raise
            return {"generation": None, "judge": None, "why": str(error)}
        identity = judges.open_judge(run).digest
        return {"generation": judges.generation(run), "judge": identity, "why": "calibrated when it opened"}

    found: dict[str, Any] = run.once_json(PINNED, choose)[0]
    return found


def heldout_reward(run: Run) -> str:
    """Identity of what scores the held-out rows: the reward, and the judge that grades them.

    Rows of one plan are shared by the runs of a home, and two runs may have fitted two judges by one manifest section.
    """
    identity = spec_digest(run.manifest.reward)
    judge = pinned(run)["judge"] if judge_counts(run.manifest.reward) else None
    return digest([identity, judge]) if judge else identity


def graded(run: Run, rows: Sequence[EvaluationRow]) -> dict[str, Any]:
    """How many rows the judge graded, and the share that got its best grade, as measured and corrected for its errors.

    Empty where no judge grades the evaluation. The correction is that of Rogan and Gladen (see `correction`), for a
    rubric of two categories.
    """
    if not judge_counts(run.manifest.reward) or not run.store.exists(run.name(PINNED)):
        return {}
    number, rubric = pinned(run)["generation"], judges.rubric_of(run)
    found = judges.open_calibration(run, of=number) if number is not None else None
    if found is None:
        return {"judge": f"did not grade: {pinned(run)['why']}"}
    grades = [row.parts[rubric.name] for row in rows if rubric.name in row.parts]
    best = sum(grade == 1.0 for grade in grades)
    shown: dict[str, Any] = {"judged": len(grades), f"judge: {rubric.categories[-1]}": best}
    if len(rubric.categories) == 2:
        labels = table([], [], rubric.categories) + found.agreement.table
        share = corrected_share(best, len(grades), labels, seed=run.manifest.seed).model_dump(mode="json")
        interval = share["interval"]
        shown["judge's share"] = share["observed"]
        shown["corrected"] = {"value": share["corrected"], **interval} if "low" in interval else share["corrected"]
    return shown


def judge_inputs(run: Run) -> tuple[JudgeInput, ...]:
    """The judge in the acceptance as the gate sees it: empty where acceptance rests on verifiers alone."""
    if not judge_accepts(run.manifest.reward):
        return ()
    name = judges.section_of(run).rubric
    number = pinned(run)["generation"]
    found = judges.open_calibration(run, of=number)
    if found is None:
        return (JudgeInput(name=name, digest="", calibrated=False, state="without a calibration"),)
    frozen = number == judges.generation(run) and [one for one in looks(run)[-1:] if one.check.state == "freeze"]
    labels = f"{found.agreement.n}{' simulated' if found.simulated else ''} labels"
    state = "; ".join(found.failures) or (f"frozen, {frozen[0].told}" if frozen else f"calibrated on {labels}")
    return (JudgeInput(name=name, digest=found.digest, calibrated=found.passed and not frozen, state=state),)
