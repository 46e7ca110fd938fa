"""The sensor of human review: a person answered in MLflow, so the release ledger does what the answer says."""

import json

import dagster as dg

from pipelines.timing import seconds
from ratchet.errors import RatchetError
from ratchet.loop import affected
from ratchet.loop.context import Run
from ratchet.release.ledger import Ledger
from ratchet.release.review import already, closed_doors, complete_approval
from resources.answers import Review
from resources.home import Home
from resources.registry import Registry


@dg.sensor(
    minimum_interval_seconds=seconds(30),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="A reviewer answered in MLflow: do in the release ledger what the answer says, and say there what "
    "became of it.",
)
def registry_review(context: dg.SensorEvaluationContext, home: Home) -> dg.SensorResult:
    """Act on every answer once. The cursor holds the answers acted on whose outcome MLflow does not show yet.

    The ledger is asked, too: a tick that was killed between ledger and cursor acts no second time. While MLflow is
    away answers wait there, and a line that cannot be read holds up no other one.
    """
    acted: dict[str, str] = json.loads(context.cursor or "{}")
    ledger = Ledger.of(home.folder) if home.folder.exists() else None
    lines = ledger.lines() if ledger else []
    registry = Registry.of(home.folder) if lines else None
    if ledger is None or registry is None:
        return dg.SensorResult(skip_reason="nothing was released yet", cursor=json.dumps(acted))
    if registry.models.reached() == "away":
        return dg.SensorResult(skip_reason="MLflow is away: answers wait there", cursor=json.dumps(acted))
    events, told = [], []
    for tenant, experiment in lines:
        try:
            found = registry.answers(ledger, tenant, experiment)
        except Exception as error:
            context.log.warning(f"answers on {tenant}/{experiment} could not be read from MLflow: {error}")
            told.append(f"{tenant}/{experiment} could not be read")
            continue
        for review in found.fit:
            if review.key not in acted:
                acted[review.key] = _act(home, ledger, review)
                events.append(_observed(registry, ledger, review, acted[review.key]))
            told.append(f"{review.answer} of {review.version.label} by {review.by}: {acted[review.key]}")
        told += [one.said for one in found.unfit]
        try:
            for review in found.fit:
                registry.settle(review, acted[review.key])
                del acted[review.key]
            for one in found.unfit:
                registry.tell(tenant, experiment, one)
            if found.fit or found.unfit:
                registry.reconcile(ledger, tenant, experiment)
        except Exception as error:
            # The ledger has moved; the answer must not be acted on again because MLflow went away meanwhile.
            context.log.warning(f"MLflow does not show yet what became of an answer: {error}")
    return dg.SensorResult(
        skip_reason="; ".join(told) or "no answer is waiting", cursor=json.dumps(acted), asset_events=events
    )


def _act(home: Home, ledger: Ledger, review: Review) -> str:
    version, by, reason = review.version, review.by, review.reason
    try:
        if already(ledger, version, review.answer, by=by, reason=reason):
            if review.answer == "approve":
                complete_approval(home.store, ledger, version, by=by, at=Run.now())
        elif review.answer == "approve":
            affected.approve(home.folder, ledger, version, by=by, reason=reason, upto="canary", at=Run.now())
        else:
            ledger.reject(version, by=by, reason=reason)
    except RatchetError as error:
        missing = closed_doors(ledger, version) if review.answer == "approve" else []
        return "; also: ".join([f"refused: {error}", *(one for one in missing if one != str(error))])
    return f"now {ledger.state(version)}"


def _observed(registry: Registry, ledger: Ledger, review: Review, outcome: str) -> dg.AssetObservation:
    version = review.version
    return dg.AssetObservation(
        "production_policy",
        partition=f"{version.experiment}-{version.manifest_digest[:12]}",
        description=f"{review.answer} of {version.label} by {review.by}: {outcome}",
        metadata={
            "version": version.label,
            "state": str(ledger.state(version)),
            "answer": review.answer,
            "by": review.by,
            "reason": review.reason,
            "outcome": outcome,
            "given in": "the review queue" if review.item else "tags of the version",
            "registered model": f"{version.tenant}.{version.experiment}, version {review.number}",
        },
    )
