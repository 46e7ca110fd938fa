"""Scores are tri-state, and what cannot be computed stays words through every sum."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from ratchet.contracts.model import Contract
from ratchet.contracts.score import (
    Invalid,
    NotComputable,
    Quantity,
    Score,
    Scored,
    Unscored,
    combine,
    compose_scores,
    total,
)

SCORES = TypeAdapter(Score)
NONE = NotComputable(reason="no run was accepted")
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan, math.inf])
def test_a_score_outside_its_range_is_no_score(value: float) -> None:
    with pytest.raises(ValidationError):
        Scored(value=value)


@pytest.mark.parametrize("score", [Scored(value=0.0), Invalid(reason="sandbox: died"), Unscored()])
def test_the_three_states_survive_json_and_are_told_apart(score: Scored | Invalid | Unscored) -> None:
    assert SCORES.validate_json(SCORES.dump_json(score)) == score


def test_an_invalid_score_says_why() -> None:
    with pytest.raises(ValidationError):
        Invalid(reason="")


def test_a_score_of_unknown_kind_is_refused() -> None:
    with pytest.raises(ValidationError):
        SCORES.validate_python({"kind": "zero", "value": 0})


@given(st.lists(numbers, max_size=5), st.lists(numbers, max_size=5))
def test_one_quantity_without_a_number_makes_the_whole_sum_so(before: list[float], after: list[float]) -> None:
    assert total([*before, NONE, *after]) == NONE


def test_the_first_reason_is_the_one_that_is_shown() -> None:
    other = NotComputable(reason="the evaluation is void")
    assert combine(lambda a, b: a / b, other, NONE) == other
    assert total([total([1.0, NONE]), other]) == NONE


def test_a_sum_of_numbers_is_their_sum() -> None:
    assert total([0.25, 0.5]) == 0.75


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        (lambda a, b: a / b, (1.0, 0.0)),
        (lambda a, b: a**b, (10.0, 4000.0)),
        (lambda a, b: a * b, (1e308, 10.0)),
        (lambda a, b: a - b, (math.inf, math.inf)),
    ],
)
def test_division_by_zero_overflow_and_nan_become_words(operation, arguments) -> None:
    found = combine(operation, *arguments)
    assert isinstance(found, NotComputable)
    assert found.reason


class Figure(Contract):
    cost: Quantity


def test_words_are_written_and_read_back_as_words() -> None:
    text = Figure(cost=NONE).model_dump_json()
    assert json.loads(text) == {"cost": {"not_computable": NONE.reason}}
    assert Figure.model_validate_json(text).cost == NONE
    assert NotComputable.parse(json.loads(text)["cost"]) == NONE
    assert NotComputable.parse(0.0) == 0.0


def test_words_are_never_a_number_by_accident() -> None:
    with pytest.raises(TypeError):
        float(NONE)  # type: ignore[arg-type]
    assert "0" not in str(NONE)


def test_a_composite_with_an_invalid_part_is_invalid_whatever_else_it_has() -> None:
    broken = Invalid(reason="verifier: died")
    assert compose_scores([Scored(value=1.0), Unscored(), broken, Scored(value=0.0)]) == broken
    assert compose_scores([Scored(value=1.0), Unscored()]) == Unscored()
    assert compose_scores([Scored(value=1.0)]) is None
