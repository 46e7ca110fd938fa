"""A judge that fails in any way gives an invalid judgement, never a category and never 0, and calibration counts it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from judge_endpoint import JudgeServer, completion, cut, hang

from ratchet.contracts.score import Invalid, NotComputable, Scored, compose_scores
from ratchet.rewards.calibration.calibrate import calibrate
from ratchet.rewards.calibration.drift import DriftRule
from ratchet.rewards.calibration.labels import Label
from ratchet.rewards.judges.base import Judge, Judgement, judge_all, score_of
from ratchet.rewards.judges.endpoint import Endpoint, EndpointJudge
from ratchet.rewards.judges.rubric import Item, Rubric

NAN = float("nan")
RUBRIC = Rubric(name="grade", version="1", question="Right?", policy="Right or not.", categories=("bad", "good"))
GOOD = Judgement(category="good")
released = threading.Event()


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    released.clear()
    yield
    released.set()


def raise_error() -> Any:
    raise ConnectionError("the model is gone")


def hang_for_good() -> Any:
    released.wait(60)


def end_process() -> Any:
    raise SystemExit(137)


FAULTS: dict[str, tuple[Any, str]] = {
    "raise": (raise_error, "ConnectionError: the model is gone"),
    "hang": (hang_for_good, "Overdue: no answer within 0.5 s"),
    "kill": (end_process, "Ended: it raised SystemExit: 137"),
    "nothing": (lambda: None, "TypeError"),
    "a number": (lambda: [0.0], "TypeError: float is no Judgement"),
    "a mapping": (lambda: [{"category": "good"}], "TypeError: dict is no Judgement"),
    "too few": (list, "ValueError: 0 judgements for 1 items"),
    "nan category": (lambda: [Judgement.model_construct(category=NAN)], "ValueError: Judgement is not what"),
    "nan cost": (lambda: [Judgement.model_construct(category="good", cost_usd=NAN)], "ValueError: Judgement"),
    "outside": (lambda: [Judgement(category="superb")], "no category of the rubric"),
    "no category": (lambda: [Judgement()], "no category of the rubric"),
}


class Faulty:
    """Grades by the text, and fails on the items listed."""

    rubric, digest, batch = RUBRIC, "faulty", 1

    def __init__(self, fault: Any, items: Sequence[str]) -> None:
        self.fault, self.items = fault, set(items)

    def judge(self, items: Sequence[Item]) -> list[Judgement]:
        if items[0].item_id in self.items:
            found: list[Judgement] = self.fault()
            return found
        return [Judgement(category="good" if "right" in items[0].deliverable else "bad", cost_usd=0.01)]


def item(name: str, text: str = "right") -> Item:
    return Item(item_id=name, task="t", deliverable=f"{name} {text}")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_an_invalid_judgement_with_its_reason_and_costs_no_other(name: str) -> None:
    fault, told = FAULTS[name]
    judge: Judge = Faulty(fault, ["b"])
    found = judge_all(judge, [item("a"), item("b"), item("c", "wrong")], timeout_s=0.5)
    assert [one.category for one in found] == ["good", None, "bad"]
    assert told in (found[1].invalid or "")
    score = score_of(found[1], RUBRIC)
    assert isinstance(score, Invalid)
    assert score.reason.startswith("judge grade: ")
    assert compose_scores([score_of(found[0], RUBRIC), Scored(value=1.0), score]) == score
    if name not in ("outside", "no category"):
        assert isinstance(found[1].cost_usd, NotComputable)


def test_a_batch_that_is_not_answered_costs_one_deadline_and_not_one_for_each_item() -> None:
    class Batch(Faulty):
        batch, calls = 8, 0

        def judge(self, items: Sequence[Item]) -> list[Judgement]:
            self.calls += 1
            found: list[Judgement] = hang_for_good()
            return found

    judge = Batch(None, [])
    found = judge_all(judge, [item(str(number)) for number in range(8)], timeout_s=0.3)
    assert judge.calls == 1
    assert {one.invalid for one in found} == {"Overdue: no answer within 0.3 s"}


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (cut, ""),
        (hang(3), "no answer within"),
        (completion('{"category": NaN, "reason": ""}'), ""),
        (completion("[]"), ""),
        (b"\x00garbage", ""),
    ],
)
def test_an_endpoint_that_dies_hangs_or_answers_nonsense_is_invalid(failure: Any, told: str) -> None:
    with JudgeServer(lambda text: ("good", "")) as server:
        server.failures = [failure]
        judge = EndpointJudge(RUBRIC, Endpoint(url=server.url, model="m", retries=0, timeout_s=0.5, deadline_s=2))
        (found,) = judge_all(judge, [item("a")])
    assert found.category is None
    assert found.invalid
    assert told in found.invalid
    assert isinstance(score_of(found, RUBRIC), Invalid)


@pytest.mark.parametrize("name", ["raise", "nan category", "outside"])
def test_calibration_counts_what_could_not_be_judged_and_measures_as_if_it_were_not_there(name: str) -> None:
    items = {str(n): item(str(n), "right" if n % 2 else "wrong") for n in range(120)}
    labels = [
        Label(item_id=key, rubric="grade", rubric_version="1", category="bad" if int(key) % 5 else "good", rater="e",
              at=datetime(2030, 1, 1, tzinfo=UTC), split="calibration")
        for key in items
    ]  # fmt: skip
    lost = ["3", "10", "77"]
    at = datetime(2030, 1, 2, tzinfo=UTC)
    found = calibrate(Faulty(FAULTS[name][0], lost), items, labels, DriftRule(), at=at)
    without = calibrate(Faulty(None, []), items, [one for one in labels if one.item_id not in lost], DriftRule(), at=at)
    assert (found.invalid, without.invalid) == (3, 0)
    assert found.agreement == without.agreement
