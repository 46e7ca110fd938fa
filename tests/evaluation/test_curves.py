"""Learning curves: steps kept, gaps and what is no finite number left out."""

from __future__ import annotations

import math

from ratchet.evaluation.curves import learning_curves


def test_each_quantity_is_a_series_of_step_and_value() -> None:
    rows = [
        {"step": 5, "loss": 0.7, "validation": None, "metrics": {"exploit": 0.0}, "stopped": True, "note": "x"},
        {"step": 10, "loss": 1, "validation": 0.4, "metrics": None},
    ]
    assert learning_curves(rows) == {
        "loss": ((5, 0.7), (10, 1.0)),
        "exploit": ((5, 0.0),),
        "validation": ((10, 0.4),),
    }


def test_a_diverged_figure_leaves_a_gap() -> None:
    assert learning_curves([{"step": 1, "loss": math.nan}, {"step": 2, "loss": math.inf}, {"loss": 0.5}]) == {
        "loss": ((2, 0.5),)
    }


def test_without_training_there_is_no_curve() -> None:
    assert learning_curves([]) == {}
