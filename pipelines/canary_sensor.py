"""The sensor of live tasks: new outcomes came in, so the version in canary, or the one in production, is looked at."""

import json
from typing import Any

import dagster as dg

from pipelines.lines import show
from pipelines.timing import seconds
from ratchet.errors import RatchetError
from ratchet.loop import canary
from ratchet.loop.context import Run
from ratchet.release.ledger import Ledger
from ratchet.release.live import last_part
from resources.home import Home


@dg.sensor(
    minimum_interval_seconds=seconds(30),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Live tasks came in: roll back a proven regression where the owner's rule says so, else ask the owner; "
    "promote what proved good, as far as rule and approvals reach.",
)
def canary_regression(context: dg.SensorEvaluationContext, home: Home) -> dg.SensorResult:
    """Watch the live outcomes of every line.

    The cursor holds by line the last part that was read, the version that stood there, and a part before its first
    outcome. A line that cannot be looked at is told, keeps its cursor, and the others are looked at.
    """
    cursor: dict[str, dict[str, Any]] = json.loads(context.cursor or "{}")
    events, told = [], []
    if not home.folder.exists():
        return dg.SensorResult(skip_reason="nothing was released yet")
    ledger = Ledger.of(home.folder)
    for tenant, experiment in ledger.lines():
        key = f"{tenant}/{experiment}"
        seen = cursor.get(key, {"part": 0})
        try:
            # Before the ledger is asked: outcomes of a version that went into canary meanwhile are in later parts.
            last = last_part(home.store, tenant, experiment, seen["part"])
            stands = canary.watched_version(ledger, tenant, experiment)
            name = f"{stands[0].id}/{stands[1]}" if stands else None
            start = seen["start"] if name == seen.get("stands") and "start" in seen else seen["part"]
            if stands and (last, name) != (seen["part"], seen.get("stands")):
                found = canary.look(home.folder, home.store, ledger, *stands, Run.now(), after=start)
                if found is not None:
                    told.append(found.told)
                    events.append(_observed(found))
                    if found.events:
                        show(context, home, ledger, tenant, experiment)
        except RatchetError as error:
            context.log.warning(f"the live tasks of {key} could not be looked at: {error}")
            told.append(f"{key}: {error}")
            continue
        cursor[key] = {"part": last, "stands": name, "start": start}
    return dg.SensorResult(
        skip_reason="; ".join(told) or "no live task came in since the last look",
        cursor=json.dumps(cursor),
        asset_events=events,
    )


def _observed(found: canary.Look) -> dg.AssetObservation:
    window, version = found.window, found.version
    question = {"question to the owner": found.told} if found.asks else {}
    return dg.AssetObservation(
        "canary_window",
        partition=f"{version.experiment}-{version.manifest_digest[:12]}",
        description=found.told,
        metadata={
            "verdict": window.verdict,
            "pairs": window.pairs,
            "wealth against": window.acceptance.roll_back_wealth,
            "wealth in favour": window.acceptance.promote_wealth,
            "threshold": window.acceptance.threshold,
            **question,
        },
    )
