"""One set of scorecards on every surface: terminal, JSON, page, Dagster and MLflow say the same, in words or numbers.

The candidate here has no accepted task at all: whatever would be divided by its accepted runs is words everywhere.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from heldout_rows import block, card, plan, rows
from release_world import World, a_policy
from report_world import gate_inputs
from rich.console import Console

from assets.display import scorecard_metadata
from assets.release import _check
from ratchet.evaluation.html import release_page
from ratchet.evaluation.report import FIGURES, policy_table, report
from ratchet.evaluation.scorecard import Scorecard
from ratchet.release.gate import decide
from resources import projection
from resources.registry import Registry

PLAN = plan(40, 3, repos=20)
INCUMBENT = rows(PLAN, block(14, 40, 3), "baseline")
WORDS = "0 accepted results in the window"
OF_ACCEPTED = ("variable_per_accepted", "loaded", "amortised", "break_even")
NUMBER_ZERO = re.compile(r"(?<![\d.])0\.00+(?!\d)")


@pytest.fixture(scope="module")
def cards() -> list[Scorecard]:
    nothing = rows(PLAN, block(0, 40, 3), "sft")
    return [card(INCUMBENT, None, resamples=200), card(nothing, INCUMBENT, [420.0], resamples=200, minimum_effect=0.03)]


@pytest.fixture(scope="module")
def body(cards: list[Scorecard]) -> dict[str, Any]:
    decision = decide(
        cards[1], cards[0], gate_inputs(), others=(), decided_at=datetime(2026, 1, 2, tzinfo=UTC), decided_by="Ada"
    )
    return report(
        experiment="repair",
        manifest_digest="manifest",
        split_lock={"digest": "lock", "train": 6, "validation": 2, "heldout": 40},
        scorecards=cards,
        decision=decision.summary(),
    )


def described(body: dict[str, Any], tmp_path: Path) -> str:
    world = World(tmp_path)
    return projection.description(world.manifest, a_policy(world.store, "sft"), body["policies"][1], body)


def terminal(body: dict[str, Any]) -> str:
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(policy_table(body))
    return console.export_text()


def dagster(cards: list[Scorecard]) -> str:
    return "\n".join(str(getattr(value, "value", value)) for value in scorecard_metadata(cards).values())


def test_every_figure_reads_the_same_in_terminal_page_and_dagster(cards: list[Scorecard], body: dict[str, Any]) -> None:
    page = unescape(release_page(body)).replace("\xa0", " ")
    surfaces = terminal(body), page, dagster(cards)
    for _, figure in FIGURES:
        for policy in body["policies"]:
            assert all(figure(policy) in surface for surface in surfaces)


def test_without_an_accepted_run_its_costs_are_words_on_every_surface(
    cards: list[Scorecard], body: dict[str, Any], tmp_path: Path
) -> None:
    surfaces = {
        "terminal": terminal(body),
        "json": json.dumps(body, indent=2, ensure_ascii=False, allow_nan=False),
        "page": release_page(body),
        "dagster": dagster(cards),
        "mlflow": described(body, tmp_path),
    }
    for name, surface in surfaces.items():
        assert WORDS in surface, name
        assert not NUMBER_ZERO.search(surface), name
        assert "nan" not in re.findall(r"\w+", surface.lower()), name
    cost = body["policies"][1]["cost"]
    assert [cost[key] for key in OF_ACCEPTED] == [{"not_computable": WORDS}] * len(OF_ACCEPTED)


def test_the_check_of_a_rule_without_a_figure_shows_why(body: dict[str, Any]) -> None:
    (rule,) = [one for one in body["decision"]["rules"] if one["name"] == "cost_within_limit"]
    shown = _check(rule)
    assert not shown.passed
    assert WORDS in str(shown.metadata["figure"].value)
    assert shown.metadata["threshold"].value == 1.2


def test_mlflow_has_no_number_where_there_is_none_and_a_tag_that_says_why(
    body: dict[str, Any], tmp_path: Path, mlflow_database: Path
) -> None:
    shutil.copy(mlflow_database, tmp_path / "mlflow.db")
    world = World(tmp_path)
    page = tmp_path / "report.html"
    page.write_text(release_page(body), encoding="utf-8")
    version = world.candidate("sft")
    registry = Registry.of(tmp_path)
    made = projection.card(world.manifest, version.policy, body["policies"][1], page, body)
    registry.project(world.ledger, world.tenant, world.experiment, [made])
    (item,) = registry.models.versions("acme.repair")
    data = registry.models.client.get_run(item.run_id).data
    for key in OF_ACCEPTED:
        assert f"cost_{key}" not in data.metrics
        assert data.tags[f"ratchet.not_computable.cost_{key}"] == WORDS
    assert data.metrics["accepted_tasks"] == 0.0
    assert data.metrics["cost_training"] == 420.0
    assert f"variable cost per accepted run: {WORDS}" in item.description
    assert "Decision of the gate: **reject**, 2026-01-02 00:00 UTC, asked for by Ada" in item.description
    assert f"runs/{item.run_id}/artifacts/report.html" in item.description
    model = registry.models.client.get_logged_model(item.source.removeprefix("models:/"))
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": "acme.repair", "version": "1"}]
