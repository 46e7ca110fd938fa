"""What a person sees of a stage: words where there is no number, tables that stay tables, plots that are images."""

from __future__ import annotations

import base64
import re

import pytest

from assets.display import acceptance, cell, curves, result, table
from assets.training import trained
from ratchet.contracts.score import NotComputable
from ratchet.loop.context import Stage

PNG = b"\x89PNG\r\n"


def picture(markdown: str) -> bytes:
    found = re.fullmatch(r"!\[[^]]+\]\(data:image/png;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert found
    return base64.b64decode(found[1])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (True, "yes"),
        (0.123456, "0.1235"),
        (0, "0"),
        ("a|b\nc", "a\\|b c"),
        (NotComputable(reason="no run was accepted"), "not computable: no run was accepted"),
        ({"not_computable": "no run was accepted"}, "not computable: no run was accepted"),
        ({"value": 0.5, "low": 0.25, "high": {"not_computable": "few"}}, "0.5 [0.25, not computable: few]"),
        ({"b": 1, "a": [2]}, '{"a":[2],"b":1}'),
    ],
)
def test_a_value_reads_like_this(value: object, shown: str) -> None:
    assert cell(value) == shown


def test_a_table_has_the_columns_of_all_its_rows() -> None:
    assert table([{"a": 1}, {"a": 2, "b": "x"}]).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| 1 | – |",
        "| 2 | x |",
    ]


def test_a_long_table_says_what_it_leaves_out() -> None:
    assert table([{"a": 1}] * 5, limit=3).endswith("2 more rows are not shown.")


def test_learning_curves_are_drawn_from_numeric_columns() -> None:
    rows = [{"step": step, "loss": 1.0 / step, "note": "x", "kl": None} for step in (1, 2, 3)]
    drawn = curves(rows)
    assert drawn is not None
    assert picture(drawn).startswith(PNG)


@pytest.mark.parametrize("rows", [[], [{"step": 1, "loss": 0.5}], [{"name": "a"}, {"name": "b"}]])
def test_without_two_numbers_there_is_no_curve(rows: list[dict[str, object]]) -> None:
    assert curves(rows) is None


def test_acceptance_is_drawn_with_and_without_an_interval() -> None:
    unknown = {"not_computable": "too few repos"}
    drawn = acceptance([("a", {"value": 0.5, "low": 0.4, "high": 0.6}), ("b", {"value": 0.2, "low": unknown})])
    assert drawn is not None
    assert picture(drawn).startswith(PNG)


def test_an_acceptance_that_cannot_be_computed_is_not_drawn() -> None:
    assert acceptance([("a", {"value": {"not_computable": "void"}, "low": None, "high": None})]) is None


def test_a_materialisation_carries_the_digest_as_its_data_version() -> None:
    made = result(Stage("s", False, "done", {"tasks": 3, "judge": None}, [{"a": 1}], "d" * 64), {"more": 1})
    assert made.data_version is not None
    assert made.data_version.value == "d" * 64
    assert made.metadata is not None
    assert made.metadata["summary"] == "done"
    assert made.metadata["judge"] == "none"
    assert made.metadata["more"] == 1


def test_a_method_that_the_manifest_leaves_out_says_so() -> None:
    made = trained("dpo", [])
    assert made.metadata is not None
    assert made.metadata["summary"] == "the manifest asks for no candidate by dpo"


def test_two_candidates_of_one_method_are_shown_side_by_side() -> None:
    stages = [Stage(name, name == "a", f"made {name}", {"validation": 0.5}, [], name * 64) for name in ("a", "b")]
    made = trained("sft", stages)
    assert made.metadata is not None
    assert made.metadata["summary"] == "a: made a; b: made b"
    assert made.metadata["reused"] is False
    assert made.metadata["b validation"] == 0.5
