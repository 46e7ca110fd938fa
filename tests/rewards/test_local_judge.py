"""A judge that is a checkpoint: it learns a rubric from its own labels, grades the same way twice, and cuts nothing."""

from datetime import UTC, datetime

import pytest

from ratchet.contracts.judge import JudgeFit
from ratchet.contracts.score import NotComputable
from ratchet.errors import RatchetError
from ratchet.rewards.calibration.agreement import agreement
from ratchet.rewards.calibration.labels import Label
from ratchet.rewards.judges.base import judge_all
from ratchet.rewards.judges.fitting import fit_judge
from ratchet.rewards.judges.local import LocalJudge
from ratchet.rewards.judges.rubric import Item, Rubric

RUBRIC = Rubric(
    name="tidy", version="1", question="Is it tidy?", policy="Tidy: no print.", categories=("untidy", "tidy")
)
WORDS = ("total", "value", "count", "items", "index", "left", "right", "size")
SMALL = JudgeFit(vocabulary=300, width=32, layers=1, context=192, epochs=5, lr=5e-3)


def items(start, stop):
    made = {}
    for n in range(start, stop):
        lines = [f"-    {WORDS[n % 8]} = {n % 7}", f"+    {WORDS[n % 8]} = {(n * 3) % 11}"]
        if n % 2:
            lines.insert(n % 3, f"+    print({WORDS[(n * 5) % 8]})")
        made[str(n)] = Item(item_id=str(n), task="Mend it.", deliverable="\n".join(lines))
    return made


def labels(chosen, split="tuning"):
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return [
        Label(
            item_id=n,
            rubric="tidy",
            rubric_version="1",
            category="untidy" if int(n) % 2 else "tidy",
            rater="f",
            at=at,
            split=split,
            simulated=True,
        )
        for n in chosen
    ]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judge")
    tuning = items(0, 160)
    losses = fit_judge(RUBRIC, tuning, labels(tuning), folder, SMALL, seed=0)
    return folder, losses


def test_it_learns_the_rubric_from_its_own_labels(fitted):
    folder, losses = fitted
    assert losses[-1] < losses[0] / 4
    judge = LocalJudge(RUBRIC, folder)
    fresh = items(200, 280)
    found = judge_all(judge, list(fresh.values()), concurrency=2)
    truth = [one.category for one in labels(fresh)]
    assert agreement(truth, [one.category for one in found], RUBRIC.categories, resamples=10).kappa > 0.8


def test_the_same_item_gets_the_same_grade_alone_and_among_others(fitted):
    judge = LocalJudge(RUBRIC, fitted[0])
    several = list(items(200, 230).values())
    together = [one.category for one in judge.judge(several)]
    assert [judge.judge([one])[0].category for one in several] == together


def test_another_fit_or_another_rubric_is_another_judge(fitted, tmp_path):
    tuning = items(0, 40)
    fit_judge(RUBRIC, tuning, labels(tuning), tmp_path, SMALL.model_copy(update={"epochs": 1}), seed=1)
    judges = [
        LocalJudge(RUBRIC, fitted[0]),
        LocalJudge(RUBRIC, tmp_path),
        LocalJudge(RUBRIC.model_copy(update={"version": "2"}), fitted[0]),
    ]
    assert len({one.digest for one in judges}) == 3
    assert LocalJudge(RUBRIC, fitted[0]).digest == judges[0].digest


def test_the_same_labels_and_seed_make_the_same_judge(tmp_path):
    tuning = items(0, 40)
    for name in ("one", "other"):
        fit_judge(RUBRIC, tuning, labels(tuning), tmp_path / name, SMALL.model_copy(update={"epochs": 1}), seed=3)
    assert LocalJudge(RUBRIC, tmp_path / "one").digest == LocalJudge(RUBRIC, tmp_path / "other").digest


def test_an_item_beyond_the_model_s_context_is_invalid_and_not_cut(fitted):
    judge = LocalJudge(RUBRIC, fitted[0], cost_per_call=NotComputable(reason="no price"))
    long = Item(item_id="long", task="Mend it.", deliverable="x = 1\n" * 400)
    found = judge.judge([long, items(1, 2)["1"]])
    assert found[0].category is None
    assert "the model reads 192" in found[0].invalid
    assert found[1].category == "untidy"
    assert isinstance(found[1].cost_usd, NotComputable)


@pytest.mark.parametrize("split", ["calibration", "anchor"])
def test_it_may_not_learn_from_labels_that_judge_it(split, tmp_path):
    tuning = items(0, 20)
    with pytest.raises(RatchetError, match="tuning split alone"):
        fit_judge(RUBRIC, tuning, [*labels(list(tuning)[:-1]), *labels(["19"], split)], tmp_path, SMALL, seed=0)
