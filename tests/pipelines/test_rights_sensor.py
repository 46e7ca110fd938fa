"""A right that ends, as Dagster and MLflow show it: the sensor, the daily sweep, the assets and the check."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef
from rights_world import PARTNER, WORD, RightsWorld, now

from pipelines.definitions import defs
from pipelines.schedules import daily_retention_sweep
from pipelines.sensors import retraining_trigger, rights_withdrawn
from ratchet.loop import affected, retraining
from ratchet.loop.context import Run
from ratchet.loop.erasing import certificates, erase
from ratchet.release.states import State
from resources.home import Home
from resources.mlflow_models import VERSION
from resources.registry import Registry


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    settings = {"telemetry": {"enabled": False}}
    reference = InstanceRef.from_dir(str(tmp_path_factory.mktemp("dagster")), overrides=settings)
    with dg.DagsterInstance.from_ref(reference) as made:
        yield made


def tick(
    world: RightsWorld, instance: dg.DagsterInstance, cursor: str | None = None, sensor: Any = rights_withdrawn
) -> dg.SensorResult:
    with dg.build_sensor_context(instance, cursor, resources={"home": Home(path=str(world.home))}) as context:
        found = sensor(context)
    assert isinstance(found, dg.SensorResult)
    return found


def tags(world: RightsWorld, version: str) -> dict[str, str]:
    items = Registry.of(world.home).models.versions(f"{world.tenant}.{world.experiment}")
    return next(dict(item.tags) for item in items if item.tags[VERSION] == version)


def test_a_withdrawal_quarantines_what_serves_and_a_real_mlflow_server_shows_it(
    tmp_path: Path, instance: dg.DagsterInstance, mlflow_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_url)
    world = RightsWorld(tmp_path, "rights-sensor", on_withdrawal="quarantine")
    clean, learned = world.produce()
    registry = Registry.of(tmp_path)
    registry.reconcile(world.ledger, world.tenant, world.experiment)
    quiet = tick(world, instance)
    assert not list(quiet.asset_events)
    assert "ratchet.rights" not in tags(world, learned.id)
    world.event("withdraw")
    found = tick(world, instance, quiet.cursor)
    assert world.ledger.state(learned) is State.QUARANTINED
    assert world.serving() == clean.policy.name
    shown = tags(world, learned.id)
    assert shown["ratchet.rights"] == "affected_withdrawn"
    assert shown["ratchet.state"] == "quarantined"
    assert "grant 'partner' withdrawn on" in shown["ratchet.rights.reason"]
    assert "ratchet.rights" not in tags(world, clean.id)
    name = f"{world.tenant}.{world.experiment}"
    number = str(registry.models.client.get_registered_model(name).aliases["production"])
    assert registry.models.client.get_model_version(name, number).tags[VERSION] == clean.id
    (event,) = found.asset_events
    assert (event.asset_key, event.partition) == (dg.AssetKey("rights_ledger"), world.tenant)
    assert "production -> quarantined" in str(event.metadata["affected versions"].value)
    assert not list(tick(world, instance, found.cursor).asset_events)


@pytest.fixture
def local(tmp_path: Path, mlflow_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with an MLflow database of its own."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(mlflow_database, tmp_path / "mlflow.db")
    return tmp_path


def test_a_retraining_is_asked_for_once_the_data_is_erased_and_the_version_goes_at_its_deadline(
    local: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = RightsWorld(local, on_withdrawal="retrain", withdrawal_deadline_days=5)
    _, learned = world.produce()
    watched = tick(world, instance, sensor=retraining_trigger).cursor
    world.event("withdraw")
    first = tick(world, instance)
    assert not first.run_requests
    assert json.loads(first.cursor or "")["waiting"] == [PARTNER]
    assert world.serving() == "sft"
    erase(world.home, PARTNER, by="steward", reason="asked for", at=now())
    second = tick(world, instance, first.cursor)
    (request,) = second.run_requests or []
    successor = retraining.successor(local, world.manifest, str(retraining.head(local, world.tenant)))
    assert (request.partition_key, request.run_key) == (
        successor.manifest.run_id,
        f"{successor.manifest.run_id}#rights",
    )
    assert request.tags["ratchet/rights"] == PARTNER
    # An erasure is no growth: it asks for no retraining by itself.
    assert not tick(world, instance, watched, sensor=retraining_trigger).run_requests
    later = now() + timedelta(days=6)
    monkeypatch.setattr(Run, "now", staticmethod(lambda: later))
    third = tick(world, instance, second.cursor)
    assert world.ledger.state(learned) is State.QUARANTINED
    assert json.loads(third.cursor or "")["waiting"] == []


def test_an_end_that_lies_ahead_is_followed_when_it_comes(
    local: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = RightsWorld(local, on_expiry="roll_back")
    _, learned = world.produce()
    world.event("expire", at=now() + timedelta(days=2))
    first = tick(world, instance)
    assert world.serving() == "sft"
    later = now() + timedelta(days=2, seconds=5)
    monkeypatch.setattr(Run, "now", staticmethod(lambda: later))
    tick(world, instance, first.cursor)
    assert world.ledger.state(learned) is State.ROLLED_BACK
    assert world.serving() == "baseline"


def test_mlflow_that_is_away_keeps_nothing_from_its_place(
    local: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = RightsWorld(local)
    _, learned = world.produce()
    world.event("withdraw")

    def away(*_: object) -> None:
        raise ConnectionError("MLflow is away")

    monkeypatch.setattr(Registry, "reconcile", away)
    tick(world, instance)
    assert world.ledger.state(learned) is State.QUARANTINED


def sweep(world: RightsWorld, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    instance.add_dynamic_partitions("tenants", [world.tenant])
    return defs.resolve_job_def("sweep_retention").execute_in_process(
        instance=instance,
        partition_key=world.tenant,
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )


def metadata(done: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    (event,) = done.asset_materializations_for_node(asset)
    return {name: value.value for name, value in event.metadata.items()}


def test_the_daily_sweep_lists_what_is_due_and_shows_what_is_affected(
    local: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(local))
    world = RightsWorld(local, on_withdrawal="keep")
    world.produce()
    world.event("withdraw")
    done = sweep(world, instance)
    found = metadata(done, "retention_sweep")
    assert (found["ended"], found["due"]) == (1, 1)
    assert "| partner | withdrawn |" in found["table"]
    assert "due for erasure" in found["table"]
    assert "| affected_withdrawn | partner | keep | production |" in found["affected versions"]
    again = metadata(sweep(world, instance), "rights_ledger")
    assert "| affected_withdrawn | keep | production |" in again["affected versions"]
    assert affected.holds_records(world.store, world.tenant, PARTNER)
    (check,) = [one for one in done.get_asset_check_evaluations() if one.check_name == "no_affected_version_serves"]
    assert check.passed
    assert "1 of them serve, 1 kept by manifest" in str(check.description)


def test_the_daily_sweep_erases_where_the_manifest_says_so(
    local: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(local))
    world = RightsWorld(local, erase_ended_data=True)
    world.event("legal_hold", hold=True)
    world.event("withdraw")
    assert "kept under a legal hold" in metadata(sweep(world, instance), "retention_sweep")["table"]
    world.event("legal_hold", hold=False)
    done = sweep(world, instance)
    assert "erased now, certificate" in metadata(done, "retention_sweep")["table"]
    (certificate,) = certificates(world.store, world.run.rights.effective(PARTNER, now()))
    assert certificate.by == "rule:retention"
    assert certificate.counts["Dagster run"] == 1
    assert not affected.holds_records(world.store, world.tenant, PARTNER)
    assert not [path for path in local.rglob("*") if WORD in path.name]
    assert "erased on" in metadata(sweep(world, instance), "retention_sweep")["table"]


def test_the_schedule_asks_for_a_sweep_of_every_tenant_that_has_grants(
    local: Path, instance: dg.DagsterInstance
) -> None:
    world = RightsWorld(local)
    instance.add_dynamic_partitions("tenants", [world.tenant, "of-another-home"])
    with dg.build_schedule_context(
        instance=instance,
        scheduled_execution_time=datetime(2030, 1, 2, 1, tzinfo=UTC),
        resources={"home": Home(path=str(local))},
    ) as context:
        requests = daily_retention_sweep(context)
    assert isinstance(requests, list)
    asked = [(one.partition_key, one.run_key) for one in requests]
    assert asked == [(world.tenant, f"{world.tenant}@2030-01-02T01:00")]
