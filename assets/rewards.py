"""The reward, tried for exploits before anything is trained on it, and the judge, held against the experts."""

from typing import Any

import dagster as dg

from assets.display import intervals, result
from assets.partitions import across, experiments
from assets.splits import split_lock
from ratchet.contracts.score import NotComputable
from ratchet.loop import auditing, judge, judge_drift, judge_queue
from ratchet.rewards.calibration.calibrate import JudgeCalibration
from resources import review_queue
from resources.home import Home

RECALIBRATE = "ratchet/recalibrate"
"""Run tag: open the next generation of the judge, and why."""


@dg.asset(
    partitions_def=experiments,
    group_name="rewards",
    owners=["team:rewards"],
    kinds={"transformers", "json"},
    deps=[split_lock, across("trajectories"), across("rights_ledger")],
    pool="trainer",
)
def judge_calibration(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Whether the judge means what the experts mean: kappa with both intervals, its companions, and bias audits."""
    with home.run(context.partition_key) as run:
        reason = context.run.tags.get(RECALIBRATE)
        if reason and run.manifest.reward.judge is not None:
            judge.recalibrate(run, reason)
        stage = judge.judge_calibration(run)
        found = judge.open_calibration(run) if run.manifest.reward.judge else None
        return result(stage, _calibration_metadata(found, judge_drift.looks(run)) if found else None)


@dg.asset(
    partitions_def=experiments,
    group_name="rewards",
    owners=["team:rewards"],
    kinds={"json"},
    deps=[split_lock, judge_calibration],
    pool="sandbox",
)
def reward_audit(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """What every honeypot, honest work and doing nothing earn under the reward, with the judge where one counts."""
    with home.run(context.partition_key) as run:
        return result(auditing.reward_audit(run))


@dg.asset(
    partitions_def=experiments,
    group_name="rewards",
    owners=["team:rewards"],
    kinds={"mlflow", "csv"},
    deps=[judge_calibration],
)
def judge_disagreements(context: dg.AssetExecutionContext, home: Home) -> dg.MaterializeResult:
    """Works that judge and experts grade differently, with both reasons: a review queue in MLflow, and its answers."""
    with home.run(context.partition_key) as run:
        taken = review_queue.take_in(run)
        stage, shown = judge_queue.judge_disagreements(run), review_queue.show(run)
    if shown is None:
        return result(stage)
    more = {
        "review queue": shown.link,
        "waiting": shown.waiting,
        "answered": shown.answered,
        "labels taken in": taken.added,
        "answers refused": "; ".join(taken.refused) or "none",
    }
    return result(stage, more)


def _calibration_metadata(found: JudgeCalibration, looks: list[judge_drift.Look]) -> dict[str, Any]:
    """Kappa and its companions as a plot, and the looks since."""
    seen, note = found.agreement, " (simulated labels)" if found.simulated else ""
    bars: list[tuple[str, dict[str, Any]]] = [
        (name, {"value": seen.kappa, **({} if isinstance(bounds, NotComputable) else bounds.model_dump())})
        for name, bounds in (("kappa, asymptotic", seen.asymptotic), ("kappa, bootstrap", seen.bootstrap))
    ]
    companions = {
        "agreement": seen.agreement,
        "prevalence": seen.prevalence,
        "true positive rate": seen.true_positive_rate,
        "true negative rate": seen.true_negative_rate,
    }
    bars += [(name, {"value": value}) for name, value in companions.items()]
    bars += [(f"kappa, check {look.check.number}", {"value": look.check.kappa}) for look in looks]
    drawn = intervals(bars, f"{seen.n} labels{note}; dashed: floor of kappa", floor=found.rule.floor)
    more: dict[str, Any] = {"labels are": "simulated" if found.simulated else "by persons"}
    if drawn:
        more[f"agreement (plot){note}"] = dg.MetadataValue.md(drawn)
    return more | {"looks since": "; ".join(look.told for look in looks) or "none"}
