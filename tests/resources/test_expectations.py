"""The suite of the index table: a good table meets it, and each planted fault is named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from resources.expectations import COLUMNS, Expected, check_index

if TYPE_CHECKING:
    import pandas as pd

GOOD: dict[str, Any] = dict.fromkeys(COLUMNS) | {
    "digest": "d0",
    "grant_id": "g",
    "segment": "loop",
    "score_kind": "scored",
    "score": 1.0,
    "calls": 2,
    "ok_calls": 2,
    "steps": 3,
    "source": "log.jsonl",
    "offset": 0,
    "format": "atif",
    "batch": "b",
    "ingested_at": datetime(2030, 1, 1, tzinfo=UTC),
}


def frame(*changes: dict[str, Any]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        [GOOD, GOOD | {"digest": "d1"}, *(GOOD | {"digest": f"x{n}"} | c for n, c in enumerate(changes))]
    )


def faults(table: pd.DataFrame) -> list[Expected]:
    found = check_index(table, grants={"g"}, formats={"atif"}, segments={"loop"})
    assert len(found) >= 20
    return [one for one in found if not one.passed]


def test_a_good_table_meets_every_expectation() -> None:
    assert faults(frame()) == []


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({"digest": "d0"}, "digest"),
        ({"grant_id": "of somebody else"}, "grant_id"),
        ({"segment": "unheard of"}, "segment"),
        ({"format": "xml"}, "format"),
        ({"score_kind": "maybe"}, "score_kind"),
        ({"score": 1.5}, "score"),
        ({"calls": -1}, "calls"),
        ({"steps": 0}, "steps"),
        ({"source": None}, "source"),
    ],
)
def test_a_planted_fault_is_named_by_its_column(change: dict[str, Any], about: str) -> None:
    assert {one.about for one in faults(frame(change))} == {about}


@pytest.mark.parametrize(
    ("spoil", "expectations"),
    [
        (lambda table: table.iloc[:0], {"expect_table_row_count_to_be_between"}),
        (lambda table: table.assign(surplus=1), {"expect_table_columns_to_match_set"}),
    ],
)
def test_the_shape_of_the_table_is_judged(spoil: Callable[[Any], Any], expectations: set[str]) -> None:
    assert {one.expectation for one in faults(spoil(frame()))} == expectations


def test_a_missing_column_is_an_error_and_not_a_pass() -> None:
    found = {one.expectation: one for one in faults(frame().drop(columns=["score"]))}
    assert found["expect_column_values_to_be_between"].unexpected is None
    assert "does not exist" in found["expect_column_values_to_be_between"].why
    assert "'missing': ['score']" in found["expect_table_columns_to_match_set"].why
