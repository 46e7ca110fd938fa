"""The report: the promised keys, the same figures everywhere, words for numbers, a page that asks for nothing."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime
from html import escape
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from heldout_rows import block, card, plan, rows
from rich.console import Console

from ratchet.contracts.canonical import canonical_json, digest
from ratchet.evaluation.arm import Arm
from ratchet.evaluation.compare import compare
from ratchet.evaluation.html import release_page
from ratchet.evaluation.report import FIGURES, comparison_table, decision_table, pair_cells, policy_table, report
from ratchet.release.gate import decide
from ratchet.release.inputs import GateInputs, Limits, PermissionsInput

PLAN = plan(400, 3, repos=80, segments=("off by one", "<wrong> & return"))
NOISE = np.random.default_rng(0)
INCUMBENT = rows(PLAN, NOISE.random((400, 3)) < 0.35, "baseline")
SFT = rows(PLAN, NOISE.random((400, 3)) < 0.5, "sft")
NOTHING = rows(PLAN, block(0, 400, 3), "dpo")


def body(decided: bool = True) -> dict[str, Any]:
    cards = [
        card(INCUMBENT, None),
        card(SFT, INCUMBENT, [420.0], minimum_effect=0.03),
        card(NOTHING, INCUMBENT, [420.0, 10.0], minimum_effect=0.03),
    ]
    inputs = GateInputs(
        manifest_digest="manifest",
        lock_digest="lock",
        reward_digest="reward",
        limits=Limits(minimum_effect=0.03, max_latency_ratio=1.5, max_cost_ratio=1.2),
        contamination=None,
        rights=(),
        reward_audit=None,
        policy_audit=None,
        permissions=PermissionsInput(incumbent_digest="harness", candidate_digest="harness", widened=()),
    )
    at = datetime(2026, 1, 2, tzinfo=UTC)
    decision = decide(cards[1], cards[0], inputs, others=cards[2:], decided_at=at, decided_by="rule").summary()
    return report(
        experiment="repair",
        manifest_digest="manifest",
        split_lock={"digest": "lock", "train": 600, "validation": 160, "heldout": 400},
        scorecards=cards,
        comparisons=[compare(Arm(SFT), Arm(NOTHING), resamples=1000)],
        decision=decision if decided else None,
        lineage={"sft": {"dataset": digest("d"), "grants": ["logs"]}},
    )


BODY = body()
WORDS = "0 accepted results in the window"


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


def test_table_and_page_show_the_same_figures() -> None:
    table = re.sub(r"\s+", " ", text_of(policy_table(BODY), 400))
    page = release_page(BODY)
    for _, figure in FIGURES:
        for policy in BODY["policies"]:
            shown = figure(policy)
            assert shown in table
            assert escape(shown) in page


def test_zero_accepted_is_never_a_number_on_any_surface() -> None:
    table, page = text_of(policy_table(BODY), 400), release_page(BODY)
    assert table.count(WORDS) == 4
    assert page.count(WORDS) >= 5
    for surface in (table, page):
        assert not re.search(r"(?<![\d.])0\.00(?!\d)", surface)
        assert "nan" not in surface.lower().split()


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


def test_terminal_and_page_show_the_same_of_a_pair() -> None:
    (pair,) = BODY["comparisons"]
    table, page = re.sub(r"\s+", " ", text_of(comparison_table(BODY), 400)), release_page(BODY)
    assert pair_cells(pair)[0] == "sft over dpo"
    for text in pair_cells(pair):
        assert text in table
        assert f">{escape(text)}</t" in page


class Links(HTMLParser):
    """Collects every tag and everything that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "data")]


def test_page_fetches_nothing_and_runs_nothing() -> None:
    page = release_page(BODY, {"reward": {"sft": [(0, 0.1), (10, 0.4), (20, float("nan"))]}})
    links = Links()
    links.feed(page)
    assert links.fetched == []
    assert not links.tags & {"script", "link", "iframe", "img", "object"}
    assert "url(" not in page
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page
    assert "Learning: reward" in page


def test_page_escapes_what_others_named() -> None:
    page = release_page(BODY)
    assert "<wrong>" not in page
    assert "&lt;wrong&gt; &amp; return" in page


@pytest.mark.parametrize("state", ["decided", "undecided"])
def test_page_leads_with_the_decision(state: str) -> None:
    page = release_page(BODY if state == "decided" else body(decided=False))
    lead = "Reject sft" if state == "decided" else "No decision"
    assert page.index(lead) < page.index("<svg")


def test_an_incumbent_alone_and_free_training_make_a_page() -> None:
    alone = {**BODY, "policies": BODY["policies"][:1], "comparisons": []}
    assert "this is the incumbent" in release_page(alone)
    free = report(
        experiment="repair",
        manifest_digest="manifest",
        split_lock={"digest": "lock", "train": 600, "validation": 160, "heldout": 400},
        scorecards=[card(INCUMBENT, None), card(SFT, INCUMBENT)],
    )
    assert free["policies"][1]["cost"]["break_even"] == 0.0
    assert "where lines cross" in release_page(free, {"reward": {}})
