"""Calibration as a door: labels that never overlap, evidence that names judge and labels, and refusals by name."""

import random
from datetime import UTC, datetime
from threading import Thread

import pytest
from judge_endpoint import OneByOne

from ratchet.contracts.judge import DriftRule
from ratchet.contracts.score import NotComputable
from ratchet.errors import IntegrityError, RatchetError
from ratchet.rewards.calibration.calibrate import JudgeCalibration, calibrate, majority, reopen_calibration
from ratchet.rewards.calibration.labels import Label, Labels, from_csv, latest, to_csv
from ratchet.rewards.judges.base import Judgement
from ratchet.rewards.judges.bias import report, verbosity
from ratchet.rewards.judges.rubric import Item, Rubric
from ratchet.store import Store

AT = datetime(2030, 1, 1, tzinfo=UTC)
RUBRIC = Rubric(name="grade", version="1", question="Right?", policy="Right or not.", categories=("bad", "good"))
ITEMS = {str(n): Item(item_id=str(n), task="t", deliverable=f"{n} {'right' if n % 2 else 'wrong'}") for n in range(120)}


def label(n, category=None, rater="expert", split="calibration", **fields):
    given = category or ("good" if int(n) % 2 else "bad")
    return Label(**{"item_id": str(n), "rubric": "grade", "rubric_version": "1", "category": given, "rater": rater,
                    "at": AT, "split": split} | fields)  # fmt: skip


class Reads(OneByOne):
    """Grades by the text; wrong on the items listed."""

    rubric, digest = RUBRIC, "reads"

    def __init__(self, wrong=(), fails=()):
        self.wrong, self.fails = set(wrong), set(fails)

    def one(self, item):
        if item.item_id in self.fails:
            raise TimeoutError
        right = "right" in item.deliverable
        return Judgement(category="good" if right != (item.item_id in self.wrong) else "bad", cost_usd=0.01)


def made(judge=None, labels=None, **fields):
    return calibrate(judge or Reads(), ITEMS, labels or [label(n) for n in ITEMS], DriftRule(), at=AT, **fields)


def test_a_judge_that_agrees_is_calibrated_and_the_evidence_opens_the_door_for_it_alone():
    found = made(Reads(wrong=map(str, range(8))))
    assert found.passed
    assert found.agreement.kappa == pytest.approx(0.8667, abs=1e-4)
    assert found.cost_usd == pytest.approx(1.2)
    assert not found.simulated
    found.require("reads")
    with pytest.raises(RatchetError, match="another judge"):
        found.require("another")


@pytest.mark.parametrize(
    ("judge", "labels", "why"),
    [
        (Reads(wrong=map(str, range(20))), None, "kappa 0.67 is under the floor"),
        (Reads(), [label(n) for n in range(99)], "99 labels are fewer than 100"),
        (Reads(fails=map(str, range(7))), None, "7 of 120 items could not be graded"),
        (Reads(wrong=map(str, range(1, 120, 2))), [label(n, "bad") for n in ITEMS], "kappa is not computable"),
    ],
)
def test_what_does_not_suffice_has_no_weight_and_says_why(judge, labels, why):
    found = made(judge, labels)
    with pytest.raises(RatchetError, match=why):
        found.require("reads")


def test_a_bias_that_an_audit_has_shown_bars_the_judge():
    class Long(Reads):
        def one(self, item):
            return Judgement(category="good") if len(item.deliverable) > 100 else super().one(item)

    judge = Long()
    bias = report(judge, [verbosity(judge, list(ITEMS.values()))])
    assert "it is biased: verbosity" in made(judge, bias=bias).failures
    assert made(Reads(), bias=report(Reads(), [])).audited


def test_a_bias_report_of_another_judge_is_refused():
    other = Reads()
    other.digest = "other"
    with pytest.raises(RatchetError, match="another judge"):
        made(bias=report(other, []))


def test_simulated_labels_mark_the_calibration():
    assert made(labels=[label(n, simulated=n == "7") for n in ITEMS]).simulated


def test_only_calibration_labels_and_each_rater_s_last_word_are_used():
    labels = [label(n, "bad" if int(n) % 2 else "good") for n in ITEMS] + [label(n) for n in ITEMS]
    labels += [label(f"tune-{n}", "bad", split="tuning") for n in range(50)]
    found = made(labels=labels)
    assert (found.agreement.n, found.agreement.kappa) == (120, 1.0)


def test_experts_are_measured_against_each_other_and_items_they_do_not_settle_are_left_out():
    labels = [label(n, rater=rater) for n in ITEMS for rater in ("ann", "bob")]
    labels += [label("0", "good", rater="cy"), label("1", "bad", rater="dee"), label("1", "bad", rater="eve")]
    found = made(labels=labels)
    assert 0.9 < found.experts_alpha < 1
    assert found.agreement.n == 119
    assert majority(labels)["0"] == "bad"
    assert isinstance(made().experts_alpha, NotComputable)


def test_it_reads_back_unchanged_and_opens_nothing_when_changed():
    found = made()
    assert reopen_calibration(found.to_bytes(), "stored") == found
    with pytest.raises(IntegrityError, match="digest"):
        reopen_calibration(found.to_bytes().replace(b'"simulated":false', b'"simulated":true'), "stored")
    with pytest.raises(IntegrityError, match="only by"):
        JudgeCalibration(**{name: getattr(found, name) for name in JudgeCalibration.model_fields})


@pytest.fixture
def labels(tmp_path):
    return Labels(Store(tmp_path), "acme", RUBRIC)


def test_labels_are_kept_in_order_and_the_same_again_adds_nothing(labels):
    first = [label(n) for n in range(5)]
    assert labels.add(first) == 5
    assert labels.add(first) == 0
    assert labels.add([*first, label(9)]) == 1
    assert labels.all() == [*first, label(9)]


def test_an_item_in_two_label_splits_refuses_the_whole_batch(labels):
    labels.add([label(1, split="tuning")])
    with pytest.raises(RatchetError, match=r"'1' is in the splits tuning and calibration"):
        labels.add([label(2), label(1)])
    assert len(labels.all()) == 1


def test_a_category_outside_the_rubric_is_refused(labels):
    with pytest.raises(RatchetError, match="'superb'"):
        labels.add([label(1, "superb")])


def test_a_changed_batch_is_noticed(labels, tmp_path):
    labels.add([label(1)])
    (path,) = (tmp_path / "acme" / "labels" / "grade").glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"good"', b'"bad"'))
    with pytest.raises(IntegrityError, match="match its name"):
        labels.all()


def test_raters_who_add_at_once_lose_nothing(labels, tmp_path):
    def add(rater):
        mine = Labels(Store(tmp_path), "acme", RUBRIC)
        for n in random.Random(rater).sample(range(20), 20):
            mine.add([label(n, rater=rater)])

    threads = [Thread(target=add, args=(rater,)) for rater in ("ann", "bob", "cy")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(labels.all()) == 60


def test_labels_by_another_version_of_the_rubric_do_not_count(labels, tmp_path):
    labels.add([label(1)])
    newer = Labels(Store(tmp_path), "acme", RUBRIC.model_copy(update={"version": "2"}))
    assert newer.all() == []


def test_a_queue_goes_out_as_csv_and_comes_back_as_labels():
    sent = [label(n, reason='it says "no", twice\nand again') for n in range(3)]
    assert from_csv(to_csv(sent), rubric=RUBRIC, at=AT) == sent
    back = from_csv("item_id,category,rater,reason\n1,good,ann,\n2,,ann,open\n", rubric=RUBRIC, at=AT)
    assert back == [label(1, "good", rater="ann")]
    with pytest.raises(RatchetError, match=r"line 2.*rater"):
        from_csv("item_id,category\n1,good\n", rubric=RUBRIC, at=AT)


def test_a_rater_s_later_word_replaces_the_earlier_one():
    assert latest([label(1, "bad"), label(2), label(1, "good")]) == [label(1, "good"), label(2)]


def test_the_same_word_again_is_not_new_whenever_it_is_brought_and_another_one_is(labels):
    later = datetime(2031, 1, 1, tzinfo=UTC)
    first = label(1)
    labels.add([first])
    assert labels.add([first.model_copy(update={"at": later})]) == 0
    other = next(one for one in RUBRIC.categories if one != first.category)
    turned = first.model_copy(update={"at": later, "category": other})
    back = first.model_copy(update={"at": datetime(2032, 1, 1, tzinfo=UTC)})
    assert labels.add([turned, back]) == 2
    assert labels.add([turned, back]) == 0
