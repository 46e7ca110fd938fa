"""The report as CSV: numbers in full, words where there is none, in English and Spanish, and nothing that runs."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from heldout_rows import block, card, plan, rows
from report_world import BODY, WORDS, body

from ratchet.evaluation.report import report
from ratchet.evaluation.spanish import spanish
from ratchet.evaluation.spreadsheet import COLUMNS, lines, to_csv

SPANISH_WORDS = "0 resultados aceptados en la ventana"
COSTS_PER_ACCEPTED = (
    "variable cost per accepted run",
    "loaded cost per accepted run",
    "amortised cost per accepted run",
    "break-even, accepted runs",
)


def read(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


def cell(found: list[dict[str, str]], policy: str, figure: str, column: str = "value") -> str:
    (one,) = [row[column] for row in found if (row["policy"], row["part"], row["figure"]) == (policy, "policy", figure)]
    return one


def test_numbers_come_back_exactly_as_the_report_has_them() -> None:
    found = read(to_csv(BODY))
    for policy in BODY["policies"]:
        assert float(cell(found, policy["name"], "acceptance (majority)")) == policy["acceptance"]["value"]
        assert float(cell(found, policy["name"], "acceptance (majority)", "lower bound")) == policy["acceptance"]["low"]
        assert float(cell(found, policy["name"], "tokens per run")) == policy["tokens_per_run"]
    assert cell(found, "sft", "variable cost per accepted run", "unit") == "USD"
    assert [row["value"] for row in found if row["part"] == "pass^k" and row["policy"] == "sft"] == [
        repr(value) for value in BODY["policies"][1]["pass_hat"]
    ]


@pytest.mark.parametrize("figure", COSTS_PER_ACCEPTED)
def test_zero_accepted_stands_in_words_where_the_number_would(figure: str) -> None:
    assert cell(read(to_csv(BODY)), "dpo", figure) == WORDS
    words = spanish()
    text = to_csv(BODY, words).removeprefix("\ufeff")
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=";") if row[0] == "dpo"]
    (value,) = [row[4] for row in rows if row[3] == words.say(figure)]
    assert value == SPANISH_WORDS


def test_no_cell_of_a_policy_that_accepts_nothing_is_a_number_of_money_per_result() -> None:
    found = [row for row in read(to_csv(BODY)) if row["policy"] == "dpo" and "per accepted" in row["figure"]]
    assert len(found) == 3
    assert {row["value"] for row in found} == {WORDS}
    assert float(cell(read(to_csv(BODY)), "dpo", "at least, where nothing was accepted")) == pytest.approx(2616 / 3)


@pytest.mark.parametrize("decided", [True, False])
def test_the_spanish_file_has_decimal_commas_and_leaves_no_word_in_english(decided: bool) -> None:
    words = spanish()
    whole = body(decided)
    text = to_csv(whole, words)
    assert text.startswith("\ufeff")
    digests = {one["digest"] for one in whole["policies"]}
    assert {
        said for said in words.missing if said not in digests and said.removeprefix("another than ") != said
    } == set()
    assert {said for said in words.missing if said not in digests} == set()
    found = list(csv.reader(io.StringIO(text.removeprefix("\ufeff")), delimiter=";"))
    assert len(found[0]) == len(COLUMNS)
    assert {len(row) for row in found} == {len(COLUMNS)}
    numbers = [row[4] for row in found[1:] if row[4][:1].isdigit() and " " not in row[4] and row[4] not in digests]
    assert any("," in number for number in numbers)
    assert not any("." in number for number in numbers)


def test_both_languages_hold_the_same_figures() -> None:
    english = [row[4:7] for row in csv.reader(io.StringIO(to_csv(BODY)))]
    text = to_csv(BODY, spanish()).removeprefix("\ufeff")
    other = [row[4:7] for row in csv.reader(io.StringIO(text), delimiter=";")]
    numbers = [cell for row in english for cell in row if _number(cell)]
    assert numbers == [cell.replace(",", ".") for row in other for cell in row if _number(cell.replace(",", "."))]


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_every_segment_and_rule_has_its_lines() -> None:
    found = list(lines(BODY))
    for policy in BODY["policies"]:
        for segment in policy["segments"]:
            own = {one.figure for one in found if (one.policy, one.name) == (policy["name"], segment["name"])}
            assert own == {"tasks", "accepted", "difference", "mean of seeds", "p (Holm)", "detectable effect"}
    rules = {one.name for one in found if one.part == "decision" and one.name}
    assert rules == {rule["name"].replace("_", " ") for rule in BODY["decision"]["rules"]}


def test_an_undecided_report_says_so() -> None:
    (last,) = [row for row in read(to_csv(body(decided=False))) if row["part"] == "decision"]
    assert last["value"] == "the gate has not decided yet"


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@sum", "\tx"])
def test_a_name_from_outside_is_no_formula(name: str) -> None:
    planned = plan(30, 1, segments=(name,))
    whole: dict[str, Any] = report(
        experiment="e",
        manifest_digest="m",
        split_lock={"digest": "d"},
        scorecards=[card(rows(planned, block(9, 30, 1), name), None)],
    )
    texts = {text for row in csv.reader(io.StringIO(to_csv(whole))) for text in row}
    assert f"'{name}" in texts
    assert name not in texts
