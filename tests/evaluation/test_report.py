"""The report: the promised keys, the same figures in every table, words for numbers."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from report_world import BODY, WORDS, body
from rich.console import Console

from ratchet.contracts.canonical import canonical_json
from ratchet.evaluation.report import FIGURES, comparison_table, decision_table, pair_cells, policy_table


def text_of(table: Any, width: int = 160) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_it_holds_every_promised_key_as_plain_json() -> None:
    assert json.loads(canonical_json(BODY)) == BODY
    assert set(BODY) >= {"experiment", "manifest_digest", "split_lock", "policies", "decision", "lineage"}
    for policy in BODY["policies"]:
        assert set(policy) >= {
            "name",
            "method",
            "digest",
            "n_tasks",
            "seeds",
            "accepted_tasks",
            "acceptance",
            "mean_of_seeds",
            "paired_difference",
            "segments",
            "tool_call_precision",
            "violations",
            "exploit_rate",
            "latency_s",
            "invalid_share",
            "cost",
        }
        assert set(policy["cost"]) >= {
            "variable_per_accepted",
            "training",
            "training_cumulative",
            "training_beyond_incumbent",
            "loaded",
            "amortised",
            "break_even",
        }
        assert set(policy["acceptance"]) >= {"value", "low", "high"}
        assert set(policy["segments"][0]) >= {"name", "n", "accepted", "difference"}
        assert set(policy["latency_s"]) == {"p50", "p95"}
    assert set(BODY["policies"][1]["paired_difference"]) >= {"value", "low", "high", "p"}
    assert {"name", "passed", "figure", "threshold"} <= set(BODY["decision"]["rules"][0])


def test_what_cannot_be_computed_is_words_in_json() -> None:
    words = {"not_computable": WORDS}
    cost = BODY["policies"][2]["cost"]
    assert [cost[key] for key in ("variable_per_accepted", "loaded", "amortised", "break_even")] == [words] * 4
    assert BODY["policies"][0]["paired_difference"] == {"not_computable": "this is the incumbent"}
    assert body(decided=False)["decision"] == {"not_computable": "the gate has not decided yet"}


def test_the_table_shows_every_figure() -> None:
    table = re.sub(r"\s+", " ", text_of(policy_table(BODY), 400))
    for _, figure in FIGURES:
        assert all(figure(policy) in table for policy in BODY["policies"])


def test_zero_accepted_is_never_a_number() -> None:
    table = text_of(policy_table(BODY), 400)
    assert table.count(WORDS) == 4
    assert not re.search(r"(?<![\d.])0\.00(?!\d)", table)
    assert "nan" not in table.lower().split()


def test_segments_have_intervals_around_their_difference() -> None:
    for policy in BODY["policies"][1:]:
        for one in policy["segments"]:
            assert -1 <= one["low"] < one["difference"] < one["high"] <= 1
    assert {one["low"] for one in BODY["policies"][0]["segments"]} == {None}


def test_tables_fit_an_ordinary_terminal() -> None:
    for table in (policy_table(BODY), decision_table(BODY), comparison_table(BODY)):
        assert max(len(line) for line in text_of(table, 100).splitlines()) <= 100


def test_decision_table_names_every_rule_and_its_outcome() -> None:
    shown = text_of(decision_table(BODY))
    assert "REJECT" in shown
    for rule in BODY["decision"]["rules"]:
        assert rule["name"] in shown
    assert "NOT COMPUTABLE" in shown
    assert "the gate has not decided yet" in text_of(decision_table(body(decided=False)))


def test_the_terminal_shows_a_pair() -> None:
    (pair,) = BODY["comparisons"]
    table = re.sub(r"\s+", " ", text_of(comparison_table(BODY), 400))
    assert pair_cells(pair)[0] == "sft over dpo"
    assert all(text in table for text in pair_cells(pair))
