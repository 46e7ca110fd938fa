"""The figures of a report as MLflow gets them: a reason is never a number, and curves keep their steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from release_world import World
from report_world import BODY, WORDS

from ratchet.contracts.score import NotComputable
from resources.mlflow_models import PolicyCard
from resources.projection import curves, metrics
from resources.registry import Registry

FIGURES: dict[str, dict[str, Any]] = {one["name"]: one for one in BODY["policies"]}
"""By policy: an incumbent, a candidate that is better, and one that accepts nothing."""
ZERO = NotComputable(reason=WORDS)


def test_what_cannot_be_computed_keeps_its_reason() -> None:
    found = dict(metrics(FIGURES["dpo"]))
    assert {name: found[f"cost_{name}"] for name in ("variable_per_accepted", "loaded", "amortised", "break_even")} == {
        "variable_per_accepted": ZERO, "loaded": ZERO, "amortised": ZERO, "break_even": ZERO,
    }  # fmt: skip
    assert dict(metrics(FIGURES["production-3"]))["paired_difference"] == NotComputable(reason="this is the incumbent")


def test_zero_is_a_number() -> None:
    found = dict(metrics(FIGURES["dpo"]))
    assert found["exploit_rate"] == 0.0
    assert found["accepted_tasks"] == 0.0
    assert found["pass_hat_3"] == 0.0
    assert found["segment_off by one_accepted"] == 0.0


def test_every_figure_of_a_scorecard_goes_to_mlflow() -> None:
    found, one = dict(metrics(FIGURES["sft"])), FIGURES["sft"]
    for name in ("tool_call_precision", "violations", "exploit_rate", "invalid_share", "tokens_per_run"):
        assert found[name] == one[name]
    assert (found["acceptance"], found["acceptance_low"]) == (one["acceptance"]["value"], one["acceptance"]["low"])
    assert found["cost_break_even"] == one["cost"]["break_even"]
    assert found["segment_off by one_difference"] == one["segments"][1]["difference"]
    assert found["reference_precision"] == NotComputable(reason="no task carries reference calls")


def test_in_a_real_mlflow_a_figure_without_a_number_is_absent_and_a_tag_says_why(
    tmp_path: Path, mlflow_database: Path
) -> None:
    shutil.copy(mlflow_database, tmp_path / "mlflow.db")
    world = World(tmp_path)
    registry = Registry(f"sqlite:///{tmp_path / 'mlflow.db'}", world.store, tmp_path / "artifacts")
    version = world.candidate("dpo")
    figures = dict(metrics(FIGURES["dpo"]))
    card = PolicyCard(version.policy, world.manifest.digest, figures, {})
    registry.project(world.ledger, world.tenant, world.experiment, [card])
    client = registry.models.client
    experiment = client.get_experiment_by_name(f"{world.tenant}.{world.experiment}")
    (run,) = client.search_runs([experiment.experiment_id])
    words = {name: value.reason for name, value in figures.items() if isinstance(value, NotComputable)}
    assert words["cost_variable_per_accepted"] == WORDS
    assert run.data.metrics.keys() == figures.keys() - words.keys()
    tags = {key: value for key, value in run.data.tags.items() if key.startswith("ratchet.not_computable.")}
    assert tags == {f"ratchet.not_computable.{name}": reason for name, reason in words.items()}
    (model,) = client.search_logged_models([experiment.experiment_id])
    assert model.tags["ratchet.not_computable.cost_loaded"] == WORDS
    assert {metric.key for metric in model.metrics}.isdisjoint(words)
    assert {metric.key: metric.value for metric in model.metrics}["segment__wrong_ _ return_accepted"] == 0.0


def test_curves_keep_their_steps_and_leave_gaps_out() -> None:
    rows = [
        {"step": 5, "loss": 0.7, "validation": None, "metrics": {"exploit": 0.0}},
        {"step": 10, "loss": 0.5, "validation": 0.4, "note": "x"},
    ]
    assert curves(rows) == {
        "curve_loss": [(5, 0.7), (10, 0.5)],
        "curve_exploit": [(5, 0.0)],
        "curve_validation": [(10, 0.4)],
    }
