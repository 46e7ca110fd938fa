"""The sensor of the judges: experts answered, so each judge is looked at, and one that has drifted is frozen."""

import json
from typing import Any

import dagster as dg

from assets.rewards import RECALIBRATE
from pipelines.jobs import recalibrate_judge
from pipelines.timing import seconds
from ratchet.errors import RatchetError
from ratchet.loop import judge
from ratchet.loop import judge_drift as drift
from ratchet.loop.context import Run, runs
from resources import review_queue
from resources.home import Home


@dg.sensor(
    job=recalibrate_judge,
    minimum_interval_seconds=seconds(60),
    description="Fresh labels came in: look at the judge, freeze it where it has drifted, and ask for a recalibration.",
)
def judge_drift(context: dg.SensorEvaluationContext, home: Home) -> dg.SensorResult:
    """Watch the labels of every judge. The cursor holds, by experiment, the labels seen and the generation frozen.

    Answers in MLflow's review queue come in as labels first. A look is stored before anything is asked for, so a freeze
    stops training even where no run can be launched. What stands in the way of one judge is told, and the others are
    looked at.
    """
    cursor: dict[str, dict[str, Any]] = json.loads(context.cursor or "{}")
    requests, events, told = [], [], []
    for run_id in runs(home.folder) if home.folder.exists() else ():
        with home.run(run_id) as run:
            if run.manifest.reward.judge is None or judge.open_calibration(run) is None:
                continue
            told += _answers(context, run)
            before = cursor.get(run_id, {})
            seen = {"labels": judge.labels_of(run).head(), "generation": judge.generation(run)}
            if seen == {name: before.get(name) for name in seen}:
                continue
            try:
                look = drift.look(run)
            except RatchetError as error:
                context.log.warning(f"the judge of {run_id} could not be looked at: {error}")
                told.append(f"{run_id}: {error}")
                continue
            cursor[run_id] = seen | {"frozen": before.get("frozen", 0)}
            if look is None:
                continue
            told.append(f"{run_id}: {look.told}")
            events.append(_observed(run_id, look))
            if look.check.state == "freeze" and cursor[run_id]["frozen"] != seen["generation"]:
                cursor[run_id]["frozen"] = seen["generation"]
                requests.append(_request(run, look))
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(told) or "no judge has enough fresh labels",
        cursor=json.dumps(cursor),
        asset_events=events,
    )


def _answers(context: dg.SensorEvaluationContext, run: Run) -> list[str]:
    """Take in what experts answered in MLflow; that it cannot be reached holds up no look at the labels there are."""
    try:
        taken = review_queue.take_in(run)
    except Exception as error:
        context.log.warning(f"answers on works of {run.manifest.run_id} could not be taken in from MLflow: {error}")
        return []
    told = [f"{run.manifest.run_id}: {taken.added} answers came in as labels"] if taken.added else []
    return told + [f"{run.manifest.run_id}: no category of the rubric is {one}" for one in taken.refused]


def _request(run: Run, look: drift.Look) -> dg.RunRequest:
    number = judge.generation(run)
    return dg.RunRequest(
        run_key=f"{run.manifest.run_id}#judge-{number}",
        partition_key=run.manifest.run_id,
        tags={RECALIBRATE: f"generation {number} froze at check {look.check.number}"},
    )


def _observed(run_id: str, look: drift.Look) -> dg.AssetObservation:
    return dg.AssetObservation(
        "judge_calibration",
        partition=run_id,
        description=look.told,
        metadata={
            "state": look.check.state,
            "statistic": look.check.statistic,
            "fresh labels": look.check.n,
            "labels are": "simulated" if look.simulated else "by persons",
        },
    )
