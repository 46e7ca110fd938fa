"""The sensors, named after the event: logs came in, a right ended, an alias was moved by hand; others have own files.

Each keeps a cursor of its own and returns it explicitly. A run key is spent even when its run fails, so it carries the
number of the attempt.
"""

import json
from typing import Any

import dagster as dg

from assets.display import incidents, table
from assets.partitions import experiments
from pipelines.canary_sensor import canary_regression
from pipelines.jobs import retrain_policy
from pipelines.judge_sensor import judge_drift
from pipelines.lines import lines, show
from pipelines.review_sensor import registry_review
from pipelines.timing import seconds
from ratchet.loop import affected, retraining
from ratchet.loop.context import Run
from ratchet.rights import Ledger as RightsLedger
from resources.home import Home

ATTEMPTS = 3
OCCASION = "ratchet/trajectories"
"""Run tag: the newest batch that asked for the run."""


@dg.sensor(
    job=retrain_policy,
    minimum_interval_seconds=seconds(60),
    description="Logs from outside came in: repeat the newest experiment of their tenant on the data grown.",
)
def retraining_trigger(context: dg.SensorEvaluationContext, home: Home) -> dg.SensorResult:
    """Watch `<tenant>/refs/trajectories`. The cursor holds, by tenant, the newest batch seen and the attempts made.

    At its first look at a tenant the sensor only remembers where it stands.
    """
    cursor: dict[str, dict[str, Any]] = json.loads(context.cursor or "{}")
    requests, opened = [], []
    for tenant in retraining.tenants(home.folder):
        seen = cursor.get(tenant)
        if seen is None:
            cursor[tenant] = {"head": retraining.head(home.folder, tenant), "attempt": 0}
            continue
        manifest = retraining.newest(home.folder, tenant)
        grown = retraining.growth(home.folder, tenant, seen["head"])
        if manifest is not None and grown is not None:
            seen = {"head": grown.head, "attempt": 1}
        elif manifest is not None and _failed(context.instance, seen):
            seen = {"head": seen["head"], "attempt": seen["attempt"] + 1}
        else:
            continue
        cursor[tenant] = seen
        run = retraining.successor(home.folder, manifest, seen["head"])
        opened.append(run.manifest.run_id)
        requests.append(_request(run, seen))
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "no logs from outside since the last look",
        cursor=json.dumps(cursor),
        dynamic_partitions_requests=[experiments.build_add_request(opened)] if opened else None,
    )


def _request(run: Run, seen: dict[str, Any]) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=f"{run.manifest.run_id}#{seen['attempt']}",
        partition_key=run.manifest.run_id,
        tags={OCCASION: seen["head"]},
    )


def _failed(instance: dg.DagsterInstance, seen: dict[str, Any]) -> bool:
    """Whether the last run for this batch failed and may be tried again."""
    if not 0 < seen["attempt"] < ATTEMPTS:
        return False
    last = instance.get_runs(dg.RunsFilter(tags={OCCASION: seen["head"]}), limit=1)
    return bool(last) and last[0].status is dg.DagsterRunStatus.FAILURE


@dg.sensor(
    minimum_interval_seconds=seconds(60),
    description="MLflow does not show what the release ledger says: repair it, and report what was done by hand.",
)
def registry_reconciler(context: dg.SensorEvaluationContext, home: Home) -> dg.SensorResult:
    """Reconcile every line of the ledger. The cursor counts the incidents reported so far."""
    found = [
        incident
        for ledger, registry, tenant, experiment in lines(home)
        for incident in registry.reconcile(ledger, tenant, experiment)
    ]
    for incident in found:
        context.log.warning(f"{incident.what} was {incident.seen}, expected {incident.expected}")
    observed = dg.AssetObservation(
        "production_policy",
        description=f"changes made by hand in MLflow: {len(found)}",
        metadata={"incidents": dg.MetadataValue.md(incidents(found))},
    )
    return dg.SensorResult(
        skip_reason=f"{len(found)} incidents" if found else "MLflow shows what the ledger says",
        cursor=str(int(context.cursor or 0) + len(found)),
        asset_events=[observed] if found else [],
    )


@dg.sensor(
    job=retrain_policy,
    minimum_interval_seconds=seconds(30),
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="A grant was withdrawn or ended early: models that saw its data follow the policy of their manifest.",
)
def rights_withdrawn(context: dg.SensorEvaluationContext, home: Home) -> dg.SensorResult:
    """Watch the rights ledger. The cursor holds the events seen, and the grants that something still waits for.

    A retraining is asked for once the data of the grant is erased: before that nothing may be learned from beside it.
    """
    cursor: dict[str, Any] = json.loads(context.cursor or '{"events": 0, "waiting": []}')
    now, rights = Run.now(), RightsLedger.at_home(home.folder)
    fresh = rights.events[cursor["events"] :] if len(rights) > cursor["events"] else ()
    owners = {event.grant_id: event.tenant for event in fresh if event.kind in ("withdraw", "expire")}
    owners |= {grant_id: str(rights.effective(grant_id, now).tenant) for grant_id in cursor["waiting"]}
    followed = {grant_id: affected.follow(home.folder, grant_id, now) for grant_id in sorted(owners)}
    # An event may count from a later time on: its grant is looked at again until it has ended.
    pending = [grant_id for grant_id in owners if rights.effective(grant_id, now).state == "active"]
    waiting = [grant_id for grant_id, found in followed.items() if any(one.retrain for one in found)]
    moved = {(one.version.tenant, one.version.experiment) for found in followed.values() for one in found}
    for ledger, _, tenant, experiment in lines(home) if moved else ():
        if (tenant, experiment) in moved:
            show(context, home, ledger, tenant, experiment)
    requests, opened = _retrainings(home, [one for found in followed.values() for one in found])
    told = [f"{grant_id} of {owners[grant_id]}: {len(found)} versions" for grant_id, found in followed.items()]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(told) or "no grant was withdrawn since the last look",
        cursor=json.dumps({"events": len(rights), "waiting": sorted({*pending, *waiting})}),
        asset_events=[_observed(owners[grant_id], found) for grant_id, found in followed.items() if found],
        dynamic_partitions_requests=[experiments.build_add_request(opened)] if opened else None,
    )


def _retrainings(home: Home, found: list[affected.Followed]) -> tuple[list[dg.RunRequest], list[str]]:
    """A run of the successor for every version that waits for one, once nothing of its grant is left to learn from."""
    requests: dict[str, dg.RunRequest] = {}
    for one in found:
        tenant, head = one.version.tenant, retraining.head(home.folder, one.version.tenant)
        if one.retrain and head and not affected.holds_records(home.store, tenant, one.grant_id):
            run = retraining.successor(home.folder, retraining.manifest_of(home.folder, one.version), head)
            key = run.manifest.run_id
            requests[key] = dg.RunRequest(
                run_key=f"{key}#rights", partition_key=key, tags={OCCASION: head, "ratchet/rights": one.grant_id}
            )
    return list(requests.values()), list(requests)


def _observed(tenant: str, found: list[affected.Followed]) -> dg.AssetObservation:
    return dg.AssetObservation(
        "rights_ledger",
        partition=tenant,
        description=f"a right has ended: {len(found)} versions are affected",
        metadata={"affected versions": dg.MetadataValue.md(table([one.row() for one in found]))},
    )


SENSORS = (retraining_trigger, rights_withdrawn, registry_review, registry_reconciler, judge_drift, canary_regression)
