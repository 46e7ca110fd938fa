"""Faults of the judge in a held-out evaluation: retried in its budget, counted with reasons, in no figure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from marked_world import JUDGE, Marked, episode_of, marking_grader
from test_faults_in_evaluation import RETRIES, SEEDS, evaluated, figures, outcome

from ratchet.contracts.environment import Task
from ratchet.contracts.judge import JudgeSection
from ratchet.contracts.manifest import Reward, RewardPart
from ratchet.environments.repair import RepairEnvironment
from ratchet.errors import TooManyInvalid
from ratchet.evaluation.rows import EvaluationRow
from ratchet.evaluation.run import failed
from ratchet.rewards.judges import base
from ratchet.rewards.judges.base import Judgement
from ratchet.rewards.judges.grading import Grader

REWARD = Reward(parts=(RewardPart(verifier="hidden_tests", weight=1.0),), judge=JudgeSection(**JUDGE))
STRICT = REWARD.model_copy(update={"acceptance": ("hidden_tests", "edit_quality")})
Rows = list[EvaluationRow]


def dies() -> Any:
    raise ConnectionError("the judge is gone")


def ends_the_process() -> Any:
    raise SystemExit(137)


released = threading.Event()


def hangs() -> Any:
    released.wait(30)


@pytest.fixture(autouse=True)
def _one_second(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A call of the judge may take a second; what hangs is let go afterwards."""
    released.clear()
    monkeypatch.setitem(base.judge_all.__kwdefaults__, "timeout_s", 1.0)
    yield
    released.set()


KINDS = (dies, hangs, ends_the_process, lambda: Judgement.model_construct(category=float("nan")), lambda: "good")


def graded(
    environment: RepairEnvironment, tasks: list[Task], folder: Path, grader: Grader, reward: Reward = REWARD,
    share: float = 1.0,
) -> Rows:  # fmt: skip
    return evaluated(Marked(environment), tasks, folder, share, reward, grader)


def failing(strikes: dict[tuple[str, int], int], first: int = 0) -> Grader:
    """A judge that fails for some episodes so many times, with each kind of fault in turn, from the `first` on."""
    found, left = marking_grader(), dict(strikes)
    order = {key: at for at, key in enumerate(sorted(strikes))}

    def fault(text: str) -> Any:
        key = episode_of(text)
        if not left.get(key):
            return None
        left[key] -= 1
        return KINDS[(order[key] + first) % len(KINDS)]()

    found.judge.faults = fault  # type: ignore[attr-defined]
    return found


@pytest.fixture(scope="module")
def chosen(tasks: list[Task]) -> list[Task]:
    return tasks[:8]


@pytest.fixture(scope="module")
def whole(environment: RepairEnvironment, chosen: list[Task], tmp_path_factory: Any) -> Rows:
    """The rows where nothing fails."""
    return graded(environment, chosen, tmp_path_factory.mktemp("whole"), marking_grader())


@pytest.fixture(scope="module")
def judged(whole: Rows) -> list[str]:
    """Tasks of which every episode was handed in, and so graded."""
    found = [row.task_id for row in whole if row.seed == SEEDS[0] and row.submitted]
    return [name for name in found if all(row.submitted for row in whole if row.task_id == name)]


def test_the_rows_hold_the_grade_and_the_calls(whole: Rows) -> None:
    handed_in = [row for row in whole if row.submitted]
    assert handed_in
    assert all(row.judge_calls == 1 for row in handed_in)
    assert {row.parts["edit_quality"] for row in handed_in} == {0.0, 1.0}
    for row in handed_in:
        if not row.violations and not row.exploit:
            assert row.reward == pytest.approx((row.parts["hidden_tests"] + 0.5 * row.parts["edit_quality"]) / 1.5)


def test_a_retry_that_succeeds_gives_the_row_that_no_fault_would_have_given_and_counts_its_calls(
    environment: RepairEnvironment, chosen: list[Task], whole: Rows, judged: list[str], tmp_path: Path
) -> None:
    strikes = {(name, seed): 1 + seed for name in judged[:3] for seed in SEEDS}
    found = graded(environment, chosen, tmp_path, failing(strikes))
    calls = {"judge_calls"}
    assert [drop(row, calls) for row in found] == [drop(row, calls) for row in whole]
    assert {(row.task_id, row.seed): row.attempts - 1 for row in found if row.attempts > 1} == strikes
    assert all(row.judge_calls == row.attempts for row in found if row.submitted)
    assert figures(found) == figures(whole)
    assert failed(found).invalid == {}


def drop(row: EvaluationRow, names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in outcome(row).items() if name not in names}


@pytest.mark.parametrize(("reward", "first"), [(REWARD, 0), (STRICT, 1)], ids=["pays", "accepts"])
def test_what_the_judge_cannot_grade_is_in_the_counts_and_in_no_statistic(
    environment: RepairEnvironment, chosen: list[Task], judged: list[str], reward: Reward, first: int, tmp_path: Path
) -> None:
    lost = set(judged[:2])
    strikes = {(name, seed): 1_000_000 for name in lost for seed in SEEDS}
    found = graded(environment, chosen, tmp_path / "faulty", failing(strikes, first), reward=reward)
    rest = [task for task in chosen if task.task_id not in lost]
    without = graded(environment, rest, tmp_path / "without", marking_grader(), reward=reward)
    assert {row.task_id for row in found if row.status == "invalid"} == lost
    assert {row.attempts for row in found if row.status == "invalid"} == {RETRIES + 1}
    assert {row.reward for row in found if row.status == "invalid"} == {None}
    reasons = failed(found).invalid
    assert sum(reasons.values()) == len(strikes)
    assert all(reason.startswith("judge edit_quality: ") for reason in reasons)
    assert len(reasons) == len(strikes) == 4
    assert [outcome(row) for row in found if row.task_id not in lost] == [outcome(row) for row in without]
    assert figures(found) == figures(without)


def test_acceptance_that_asks_for_the_grade_takes_it_from_the_rows(
    environment: RepairEnvironment, chosen: list[Task], whole: Rows, tmp_path: Path
) -> None:
    found = graded(environment, chosen, tmp_path, marking_grader(), reward=STRICT)
    assert [row.parts for row in found] == [row.parts for row in whole]
    for strict, plain in zip(found, whole, strict=True):
        best = strict.parts.get("edit_quality") == 1.0
        assert strict.status == ("accepted" if plain.status == "accepted" and best else "rejected")


def test_a_judge_that_fails_on_too_many_stops_the_evaluation_with_its_reason(
    environment: RepairEnvironment, chosen: list[Task], judged: list[str], tmp_path: Path
) -> None:
    grader = failing({(name, seed): 1_000_000 for name in judged for seed in SEEDS})
    with pytest.raises(TooManyInvalid, match=r"held-out runs of starter.*judge edit_quality: "):
        graded(environment, chosen, tmp_path, grader, share=0.05)
