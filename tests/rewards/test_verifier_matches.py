"""Exact match, structured match and state checks: what was declared, and nothing a policy writes can break them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_world import SOLUTION, attempt, task_of

from ratchet.contracts.environment import Deliverable
from ratchet.contracts.score import Invalid, Scored
from ratchet.rewards.compose import scored_by
from ratchet.rewards.verifiers import VERIFIERS
from ratchet.rewards.verifiers.comparing import difference


def judged(name: str, rule: dict[str, Any], **files: str) -> Scored | Invalid:
    """The score of delivered files (`answer_json` stands for `answer.json`) under what a task declares."""
    task = task_of({SOLUTION: "x = 1\n"}, verification={name: rule})
    named = {key.replace("_", "."): text for key, text in files.items()}
    work = Deliverable(submitted=True, files={SOLUTION: "x = 1\n", **named})
    return scored_by("verifier", name, VERIFIERS[name], attempt(work, task))


def value(name: str, rule: dict[str, Any], **files: str) -> float:
    score = judged(name, rule, **files)
    assert isinstance(score, Scored)
    return score.value


def test_exact_is_to_the_character_and_normalised_forgives_typesetting() -> None:
    exact = {"file": "answer.txt", "expected": ["It's 3–4 km."]}
    assert value("exact_match", exact, answer_txt="It's 3–4 km.") == 1
    assert value("exact_match", exact, answer_txt="It's 3-4 km.") == 0
    loose = {**exact, "text": "normalised"}
    assert value("exact_match", loose, answer_txt="  it’s\n3-4 KM. ") == 1
    assert value("exact_match", loose, answer_txt="it’s 3-5 km.") == 0


def test_one_of_several_accepted_texts_is_enough_and_a_missing_file_is_not() -> None:
    rule = {"file": "answer.txt", "expected": ["yes", "true"]}
    assert [value("exact_match", rule, answer_txt=text) for text in ("true", "yes", "no")] == [1, 1, 0]
    assert value("exact_match", rule) == 0


STRUCTURE = {"total": 10.0, "items": [{"id": 1}, {"id": 2}], "open": True}


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"total": 10.2}, "/total: another number"),
        ({"items": [{"id": 1}]}, "/items: 1 items, not 2"),
        ({"items": [{"id": 2}, {"id": 1}]}, "/items/0/id: another number"),
        ({"open": 1}, "/open: another type"),
        ({"more": 0}, "/more: not expected"),
    ],
)
def test_a_structure_that_differs_names_the_place(changed: dict[str, Any], where: str) -> None:
    rule = {"file": "answer.json", "expected": STRUCTURE, "absolute": 0.1}
    score = judged("structured_match", rule, answer_json=json.dumps({**STRUCTURE, **changed}))
    assert isinstance(score, Scored)
    assert (score.value, score.evidence["differs"]) == (0.0, where)


def test_numbers_match_within_tolerance_and_a_subset_may_have_more() -> None:
    rule = {"file": "answer.json", "expected": STRUCTURE, "absolute": 0.1}
    assert value("structured_match", rule, answer_json=json.dumps({**STRUCTURE, "total": 10.05})) == 1
    more = json.dumps({**STRUCTURE, "more": 0})
    assert value("structured_match", {**rule, "subset": True}, answer_json=more) == 1
    relative = {"file": "answer.json", "expected": 2000, "relative": 0.01}
    assert [value("structured_match", relative, answer_json=text) for text in ("2019", "2021")] == [1, 0]


HOSTILE = [
    "[" * 100_000 + "]" * 100_000, "[" * 70 + "]" * 70, '{"total": NaN}', "1e999", "9" * 10_000, '{"total": Infinity}',
    '{"total": 10, "total": 10.0}', "", "{", "\ud800", '{"__class__": []}',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("subset", [False, True])
def test_no_delivered_text_escapes_the_judgement(text: str, subset: bool) -> None:
    rule = {"file": "answer.json", "expected": {"total": 10.0}, "absolute": 1e308, "subset": subset}
    assert value("structured_match", rule, answer_json=text) == 0
    check = {"file": "answer.json", "holds": "json", "pointer": "/total", "value": 10.0}
    assert value("state_checks", {"checks": [check]}, answer_json=text) == 0


@pytest.mark.parametrize("name", ["exact_match", "structured_match", "state_checks", "citations"])
def test_a_task_that_declares_nothing_or_nonsense_is_invalid_and_no_fault_of_the_policy(name: str) -> None:
    task = task_of({SOLUTION: ""})
    missing = scored_by("verifier", name, VERIFIERS[name], attempt(None, task))
    wrong = judged(name, {"nonsense": 1})
    assert isinstance(missing, Invalid)
    assert isinstance(wrong, Invalid)
    assert name in missing.reason


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, json_values)
def test_equality_of_structures_is_that_of_python_but_for_truth_values(one: Any, other: Any) -> None:
    assert difference(one, one) is None
    same = difference(one, other) is None
    assert same == (difference(other, one) is None)
    assert not same or one == other


STATE: dict[str, Any] = {
    "checks": [
        {"file": "order.json", "holds": "json", "pointer": "/items/0/state", "value": "shipped"},
        {"file": "order.json", "holds": "json_subset", "value": {"total": 3.0}, "absolute": 0.01},
        {"file": "draft.txt", "holds": "absent"},
    ]
}
ORDER = '{"items": [{"state": "shipped"}], "total": 3.001, "by": "x"}'


def test_the_declared_state_holds() -> None:
    assert value("state_checks", STATE, order_json=ORDER) == 1


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"order_json": ORDER.replace("shipped", "open")}, "order.json json: /items/0/state: another value"),
        ({"order_json": ORDER.replace("3.001", "3.1")}, "order.json json_subset: /total: another number"),
        ({"order_json": ORDER, "draft_txt": ""}, "draft.txt absent: it is there"),
        ({}, "order.json json: no such file"),
        ({"order_json": ORDER, "other_txt": "left behind"}, "other.txt changed"),
        ({"order_json": "[]"}, "order.json json: nothing at /items/0/state"),
    ],
)
def test_each_deviation_from_the_state_is_named(files: dict[str, str], why: str) -> None:
    score = judged("state_checks", STATE, **files)
    assert isinstance(score, Scored)
    assert score.value == 0
    assert why in score.evidence["failed"]


def test_an_open_state_forgives_other_files() -> None:
    assert value("state_checks", {**STATE, "closed": False}, order_json=ORDER, other_txt="more") == 1
