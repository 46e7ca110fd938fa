"""A local judge, fitted, calibrated and paid in a real training; frozen, the same training is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from judge_world import with_judge

from ratchet.errors import TrainingError
from ratchet.loop import auditing, data, judge, judge_drift, judging, learning
from ratchet.rewards.calibration.drift import DriftCheck

SMALL: dict[str, Any] = {
    "rubric": "edit_quality",
    "weight": 0.1,
    "fit": {"vocabulary": 300, "width": 32, "layers": 1, "epochs": 16, "batch_size": 8, "lr": 6e-3, "hardened": False},
    "drift": {"calibrated": 0.5, "floor": 0.05, "drifted": 0.01, "min_labels": 12},
    "tuning_labels": 70,
    "calibration_labels": 24,
    "anchor_labels": 4,
}
"""Fitted in seconds, to less than anybody would pay: the thresholds are as low."""


@pytest.mark.slow
def test_a_local_judge_pays_in_training_and_a_frozen_one_stops_it(tmp_path: Path) -> None:
    with with_judge(tmp_path, SMALL) as run:
        data.contamination_report(run)
        learning.baseline_policy(run)
        learning.train_method(run, "sft")
        with pytest.raises(TrainingError, match="no calibration"):
            auditing.reward_audit(run)
        said = judge.judge_calibration(run)
        found = judge.open_calibration(run)
        assert found is not None
        assert found.simulated
        assert found.passed, said.summary
        assert judge.judge_calibration(run).reused
        auditing.reward_audit(run)
        _freeze(run)
        with pytest.raises(TrainingError, match="FROZEN"):
            learning.train_method(run, "grpo")
        for name in run.store.names(run.name(judge.place(run, "drift"))):
            run.store.delete(name)
        (stage,) = learning.train_method(run, "grpo")
        assert learning.open_policy(run, "grpo").training["judge_calibration"] == found.digest
        assert not stage.reused
        trained = learning.open_policy(run, "grpo")
        asked = sum(row["judge_calls"] or 0 for row in trained.training["curve"])
        assert asked > 0
        cost = judging.investment(run, trained).stage
        hours = trained.training["seconds"] / 3600
        prices = run.manifest.prices
        assert cost == pytest.approx(hours * prices.per_trainer_hour + asked * prices.per_judge_call)


def _freeze(run: Any) -> None:
    """Store a look at which the judge froze."""
    frozen = DriftCheck(number=1, n=12, kappa=0.0, statistic=9.0, state="freeze")
    look = judge_drift.Look(
        check=frozen, items=(), invalid=0, simulated=True, anchors=0, became_right=0, became_wrong=0, anchor_p=1.0,
        at=run.now(),
    )  # fmt: skip
    run.store.create(run.name(judge.place(run, "drift", "000001.json")), look.model_dump_json().encode())
