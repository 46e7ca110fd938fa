"""Bias audits: each planted bias is caught, an honest but noisy judge passes, and few items prove nothing."""

import hashlib
import re

import numpy as np
import pytest
from judge_endpoint import OneByOne
from statsmodels.stats.proportion import confint_proportions_2indep

from ratchet.rewards.judges.base import Judgement
from ratchet.rewards.judges.bias import (
    _newcombe,
    audits,
    injection,
    position,
    reopen_report,
    report,
    self_preference,
    verbosity,
)
from ratchet.rewards.judges.rubric import Item, Rubric

GRADE = Rubric(name="grade", version="1", question="Is it right?", policy="Right or not.", categories=("bad", "good"))
PAIR = Rubric(name="pair", version="1", question="Which is better?", policy="A or B.", categories=("a", "b"))
FAMILY = "house"
NOISE = 0.035


def chance(*texts):
    """A number in [0, 1) that depends on the texts alone: noise of a judge at temperature 0."""
    return int.from_bytes(hashlib.sha256("\0".join(texts).encode()).digest()[:8], "big") / 2**64


def right(text):
    return "correct" in text


class Honest(OneByOne):
    """Sees the work, and errs now and then."""

    def __init__(self, rubric=GRADE):
        self.rubric, self.digest = rubric, f"{type(self).__name__}/{rubric.name}"

    def value(self, text):
        return right(text) != (chance("noise", text) < NOISE)

    def one(self, item):
        if item.other is not None:
            return Judgement(category="a" if self.value(item.deliverable) >= self.value(item.other) else "b")
        return Judgement(category="good" if self.value(item.deliverable) else "bad")


class FirstWins(Honest):
    def one(self, item):
        follows = item.other is not None and chance(item.deliverable, item.other) < 0.5
        return Judgement(category="a") if follows else super().one(item)


class LikesLength(Honest):
    def value(self, text):
        return super().value(text) or (len(text) > 400 and chance("long", text) < 0.5)


class LikesItsOwn(Honest):
    def value(self, text):
        return super().value(text) or (
            "in our house style" in text and chance("own", re.search(r"work \d+", text)[0]) < 0.4
        )


class Obeys(Honest):
    def value(self, text):
        return super().value(text) or "already decided" in text


class Broken(Honest):
    def one(self, item):
        raise TimeoutError("no answer")


def items(n):
    made = []
    for number in range(n):
        group = FAMILY if number % 2 else "other"
        style = "in our house style" if group == FAMILY else "plainly"
        text = f"work {number} written {style}, {'correct' if number % 5 == 0 else 'wrong'}"
        made.append(Item(item_id=str(number), task="Do it.", deliverable=text, group=group))
    return made, {item.item_id: "good" if right(item.deliverable) else "bad" for item in made}


def pairs(n):
    made = []
    for number in range(n):
        one, other = ("correct", "wrong") if number % 2 else ("wrong", "correct")
        made.append(Item(item_id=str(number), task="t", deliverable=f"{number} {one}", other=f"{number} {other} too"))
    return made


def each(judge_class, n=240):
    made, labels = items(n)
    judge = judge_class()
    return {
        "position": position(judge_class(PAIR), pairs(n)),
        "verbosity": verbosity(judge, made),
        "injection": injection(judge, made, labels),
        "self_preference": self_preference(judge, made, labels, (FAMILY,)),
    }


@pytest.mark.parametrize(
    ("judge_class", "kind"),
    [(FirstWins, "position"), (LikesLength, "verbosity"), (Obeys, "injection"), (LikesItsOwn, "self_preference")],
)
def test_a_planted_bias_is_caught_by_its_name_alone(judge_class, kind):
    found = each(judge_class)
    assert {name for name, audit in found.items() if audit.verdict == "biased"} == {kind}
    assert found[kind].found


def test_an_honest_judge_that_errs_now_and_then_is_sound_in_everything():
    found = each(Honest)
    # Its noise accepts some attacked works without obeying them: no bias, and no proof of soundness either.
    assert found.pop("injection").verdict == "inconclusive"
    assert {audit.verdict for audit in found.values()} == {"sound"}


def test_a_judge_without_noise_is_sound_in_everything_and_accepts_no_injection(monkeypatch):
    monkeypatch.setitem(globals(), "NOISE", 0.0)
    found = each(Honest)
    assert {audit.verdict for audit in found.values()} == {"sound"}
    assert found["injection"].rate == 0


@pytest.mark.parametrize("judge_class", [Honest, FirstWins, LikesItsOwn])
def test_few_items_are_inconclusive(judge_class):
    found = each(judge_class, 8)
    assert {audit.verdict for audit in found.values()} == {"inconclusive"}


def test_a_judge_that_fails_is_not_sound_and_its_items_are_counted_as_invalid():
    for audit in each(Broken).values():
        assert (audit.verdict, audit.n) == ("inconclusive", 0)
        assert audit.invalid > 0


def test_every_question_is_asked_or_says_why_it_does_not_arise():
    made, labels = items(240)
    found = {audit.kind: audit for audit in audits(Obeys(), made, labels)}
    assert [*found] == ["position", "verbosity", "self_preference", "injection"]
    assert {kind for kind, audit in found.items() if audit.verdict == "not_applicable"} == {
        "position",
        "self_preference",
    }
    assert "no order of two" in str(found["position"].rate)
    assert "no agent is named" in str(found["self_preference"].rate)
    assert found["injection"].verdict == "biased"
    family = {audit.kind: audit for audit in audits(LikesItsOwn(), made, labels, [FAMILY])}
    assert family["self_preference"].verdict == "biased"


def test_a_judge_that_compares_is_asked_about_the_order_and_not_about_works_alone():
    found = audits(FirstWins(PAIR), pairs(240), {})
    assert [audit.verdict for audit in found] == ["biased", *["not_applicable"] * 3]
    assert all("compares two works" in str(audit.rate) for audit in found[1:])
    reread = reopen_report(report(FirstWins(PAIR), found).to_bytes(), "stored")
    assert reread.biased == ("position",)


def test_a_report_keeps_the_verdicts_with_the_judge_s_identity():
    made = report(LikesLength(), list(each(LikesLength).values()))
    assert reopen_report(made.to_bytes(), "stored") == made
    assert (made.biased, made.judge_digest) == (("verbosity",), "LikesLength/grade")


def test_the_interval_of_a_difference_is_newcombe_s():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n, m = rng.integers(5, 200, 2)
        one, other = rng.integers(0, n + 1), rng.integers(0, m + 1)
        bounds = _newcombe(int(one), int(n), int(other), int(m))
        theirs = confint_proportions_2indep(one, n, other, m, method="newcomb", compare="diff")
        assert (bounds.low, bounds.high) == pytest.approx(theirs, abs=1e-9)
