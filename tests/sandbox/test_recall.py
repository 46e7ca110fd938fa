"""What was made of an object is given for this very object, and for no other one."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from ratchet.sandbox.recall import ByIdentity


def test_it_is_made_once_for_an_object_and_anew_for_its_equal() -> None:
    made: list[Any] = []
    recall = ByIdentity(lambda value: made.append(value) or len(made))
    one, twin = [1], [1]
    assert [recall(one), recall(twin), recall(one), recall(twin)] == [1, 2, 1, 2]
    assert made == [[1], [1]]


def test_an_object_that_is_gone_lends_its_identity_to_none() -> None:
    recall = ByIdentity(lambda value: value[0], at_most=10_000)
    for number in range(2_000):
        assert recall([number]) == number
        gc.collect(0)


def test_all_are_forgotten_where_there_are_too_many() -> None:
    made: list[int] = []
    recall = ByIdentity(lambda value: made.append(value[0]), at_most=3)
    values = [[number] for number in range(4)]
    for value in [*values, values[0]]:
        recall(value)
    assert made == [0, 1, 2, 3, 0]


def test_what_raises_is_raised_each_time() -> None:
    def fail(value: object) -> None:
        raise ValueError(repr(value))

    recall = ByIdentity(fail)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"\[\]"):
            recall([])
