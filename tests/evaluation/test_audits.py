"""The exploitation audits in the report: every episode in JSON and page, some of each kind in a terminal."""

from __future__ import annotations

import io
import json
from html import escape
from typing import Any

from heldout_rows import plan, row
from rich.console import Console

from ratchet.contracts.canonical import canonical_json
from ratchet.evaluation.audits import SHOWN, audit_section, audit_tables, audits_entry, found_rows, spread
from ratchet.rewards.audit import RewardAudit
from ratchet.rewards.policy_audit import audit_policy

PLAN = plan(30, 1, repos=15)
HONEST = [row(PLAN, task, 0, "accepted" if task % 2 else "rejected", "incumbent") for task in range(30)]
RARE = "<call 1> is open_answers"


def cheat(task: int) -> dict[str, Any]:
    if task == 29:
        return {"exploit": True, "exploits": {"answer_key": RARE}}
    return {"exploit": True, "exploits": {"edited_tests": "touched test_visible.py"}, "visible_passed": True}


CHEAT = [
    row(PLAN, task, 0, "rejected", "cheat", **{**cheat(task), "submitted": True, "reward": 1.0}) for task in range(30)
]
REWARD = RewardAudit.issue(
    spec_digest="s", environment_digest="e", tasks_digest="t", tasks=1, probes=(), passed=False,
    failures=("edited_tests earns reward",),
)  # fmt: skip
ENTRY = audits_entry(
    REWARD,
    ("honest comes to something else",),
    {"cheat": audit_policy(CHEAT, HONEST), "same": audit_policy(HONEST, HONEST)},
)


def text() -> str:
    console = Console(width=160, file=io.StringIO(), record=True)
    for table in audit_tables(ENTRY):
        console.print(table)
    return console.export_text()


def test_it_is_plain_json_and_lists_every_episode() -> None:
    assert json.loads(canonical_json(ENTRY)) == ENTRY
    cheating, same = ENTRY["policies"]
    listed = [one for one in cheating["episodes"] if one["kind"] in ("edited_tests", "answer_key")]
    assert len(listed) == 30
    assert (same["passed"], same["kinds"], same["episodes"]) == (True, [], [])
    assert ENTRY["reward"] == {
        "passed": False,
        "failures": ["edited_tests earns reward"],
        "changes": ["honest comes to something else"],
    }


def test_a_terminal_shows_a_rare_kind_beside_a_frequent_one_and_counts_the_rest() -> None:
    shown = text()
    assert RARE in shown
    assert f"{len(ENTRY['policies'][0]['episodes']) - SHOWN} more in --html and --json" in shown
    assert "edited_tests earns reward; after training honest comes to something else" in shown
    assert "no detector fired" in shown


def test_the_page_holds_every_episode_escaped() -> None:
    page = audit_section(ENTRY)
    assert page.count("<td>touched test_visible.py</td>") == 29
    assert escape(RARE) in page
    assert RARE not in page


def test_rates_before_and_after_and_what_is_undecided_are_rows() -> None:
    rows = found_rows(ENTRY["policies"][0])
    assert ("cheat", "edited_tests", "0.0 %", "96.7 %", "share of the episodes") in rows
    assert any(cells[1] == "exploit_rate" and cells[3] == "FLAGGED" for cells in rows)
    assert rows[-1][1] == "undecided"
    assert "judge_only_gains" in rows[-1][4]


def test_few_are_spread_over_the_kinds() -> None:
    episodes = [{"kind": "a", "n": n} for n in range(5)] + [{"kind": "b", "n": 0}]
    assert [(one["kind"], one["n"]) for one in spread(episodes, 3)] == [("a", 0), ("a", 1), ("b", 0)]
    assert spread(episodes, 9) == episodes
