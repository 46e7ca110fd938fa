"""The figures of a report as MLflow gets them: a reason is never a number, and curves keep their steps."""

from __future__ import annotations

from typing import Any

from ratchet.contracts.score import NotComputable
from resources.projection import curves, metrics

WHY = {"not_computable": "no accepted run in the window"}
FIGURES: dict[str, Any] = {
    "tool_call_precision": 0.5,
    "violations": 3,
    "exploit_rate": 0.0,
    "invalid_share": 0.0,
    "accepted_tasks": 0,
    "acceptance": {"value": 0.25, "low": 0.2, "high": WHY},
    "mean_of_seeds": {"value": 0.25, "low": 0.2, "high": 0.3},
    "paired_difference": {"not_computable": "this is the incumbent"},
    "latency_s": {"p50": 0.1, "p95": 0.2},
    "cost": dict.fromkeys(
        ("variable_per_accepted", "training", "training_cumulative", "loaded", "amortised", "break_even"), WHY
    ),
    "segments": [{"name": "loop", "accepted": 2}],
}


def test_what_cannot_be_computed_keeps_its_reason() -> None:
    found = dict(metrics(FIGURES))
    reason = NotComputable(reason="no accepted run in the window")
    assert found["cost_variable_per_accepted"] == reason
    assert found["acceptance_high"] == reason
    assert found["paired_difference"] == NotComputable(reason="this is the incumbent")


def test_zero_is_a_number() -> None:
    found = dict(metrics(FIGURES))
    assert found["exploit_rate"] == 0.0
    assert found["accepted_tasks"] == 0.0
    assert found["segment_loop_accepted"] == 2.0


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
