"""The sensors and the schedule, on a real store, ledger and MLflow database."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef
from release_world import World, a_manifest
from typer.testing import CliRunner

from pipelines.review_sensor import registry_review
from pipelines.schedules import nightly_improvement_loop
from pipelines.sensors import (
    ATTEMPTS,
    OCCASION,
    registry_reconciler,
    retraining_trigger,
    rights_withdrawn,
)
from ratchet.cli.main import app
from ratchet.contracts.score import Scored
from ratchet.contracts.trajectory import Agent, RatchetExtra, Step, Trajectory
from ratchet.intake import write_atif
from ratchet.loop import retraining
from ratchet.loop.context import open_run, reopen_run, runs
from ratchet.loop.intake import ingest_landing
from resources.home import Home
from resources.registry import Registry

MANIFEST = a_manifest()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def tick(sensor: dg.SensorDefinition, instance: dg.DagsterInstance, home: Path, cursor: str | None) -> dg.SensorResult:
    with dg.build_sensor_context(instance, cursor, resources={"home": Home(path=str(home))}) as context:
        found = sensor(context)
    assert isinstance(found, dg.SensorResult)
    return found


def land(home: Path, name: str, number: int) -> None:
    """Write one log and take it in."""
    extra = RatchetExtra(tenant="acme", grant_id="g", task_id=f"task-{number}", score=Scored(value=1.0))
    steps = [Step(step_id=1, source="user", message=f"fix bug {number}")]
    log = Trajectory(agent=Agent(name="expert", version="1"), steps=steps).with_ratchet(extra)
    folder = home / "landing" / "acme" / "g"
    folder.mkdir(parents=True, exist_ok=True)
    write_atif([log], folder / name)
    ingest_landing(home, "acme", datetime.now(UTC))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with one experiment that wrote and took in logs of its own."""
    open_run(tmp_path, MANIFEST)
    land(tmp_path, f"{MANIFEST.run_id}.expert.atif.jsonl", 0)
    return tmp_path


def test_the_first_look_only_remembers_where_a_tenant_stands(home: Path, instance: dg.DagsterInstance) -> None:
    land(home, "outside.jsonl", 1)
    found = tick(retraining_trigger, instance, home, None)
    assert not found.run_requests
    assert json.loads(found.cursor or "")["acme"] == {"head": retraining.head(home, "acme"), "attempt": 0}


def test_logs_from_outside_open_and_launch_the_successor_of_the_newest_experiment(
    home: Path, instance: dg.DagsterInstance
) -> None:
    before = tick(retraining_trigger, instance, home, None).cursor
    land(home, "outside.jsonl", 1)
    found = tick(retraining_trigger, instance, home, before)
    (request,) = found.run_requests or []
    successor = reopen_run(home, str(request.partition_key)).manifest
    assert successor == MANIFEST.model_copy(update={"grown_to": retraining.head(home, "acme")})
    assert runs(home) == [MANIFEST.run_id, successor.run_id]
    assert request.run_key == f"{successor.run_id}#1"
    (added,) = found.dynamic_partitions_requests or []
    assert list(added.partition_keys) == [successor.run_id]
    again = tick(retraining_trigger, instance, home, found.cursor)
    assert not again.run_requests
    assert again.cursor == found.cursor


def test_what_an_experiment_writes_itself_asks_for_no_retraining(home: Path, instance: dg.DagsterInstance) -> None:
    before = tick(retraining_trigger, instance, home, None).cursor
    land(home, f"{MANIFEST.run_id}.dpo.0123.atif.jsonl", 1)
    assert not tick(retraining_trigger, instance, home, before).run_requests


def test_logs_of_both_kinds_are_told_apart_and_counted(home: Path) -> None:
    land(home, "outside.jsonl", 1)
    since = retraining.head(home, "acme")
    land(home, f"{MANIFEST.run_id}.dpo.0123.atif.jsonl", 2)
    assert retraining.growth(home, "acme", since) is None
    land(home, "more.jsonl", 3)
    assert retraining.growth(home, "acme", since) == (retraining.head(home, "acme"), 1, ("more.jsonl",))
    every = retraining.growth(home, "acme", None)
    assert every is not None
    assert every.sources == ("outside.jsonl", "more.jsonl")


def test_a_failed_retraining_is_tried_again_under_another_key_and_not_for_ever(
    home: Path, instance: dg.DagsterInstance
) -> None:
    cursor = tick(retraining_trigger, instance, home, None).cursor
    land(home, "outside.jsonl", 1)
    keys = []
    for number in range(ATTEMPTS + 2):
        found = tick(retraining_trigger, instance, home, cursor)
        cursor = found.cursor
        for request in found.run_requests or []:
            keys.append(request.run_key)
            run = dg.DagsterRun("retrain_policy", f"{number:032x}", status=dg.DagsterRunStatus.FAILURE)
            instance.add_run(run.with_tags({OCCASION: request.tags[OCCASION]}))
    (successor,) = runs(home)[1:]
    assert keys == [f"{successor}#{attempt}" for attempt in range(1, ATTEMPTS + 1)]


def test_the_schedule_takes_the_newest_experiment_of_its_home(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    newest = open_run(home, MANIFEST.model_copy(update={"seed": 2})).manifest.run_id
    storage = str(tmp_path_factory.mktemp("dagster"))
    reference = InstanceRef.from_dir(storage, overrides={"telemetry": {"enabled": False}})
    with (
        dg.DagsterInstance.from_ref(reference) as instance,
        dg.build_schedule_context(
            instance=instance,
            scheduled_execution_time=datetime(2030, 1, 2, 2, tzinfo=UTC),
            resources={"home": Home(path=str(home))},
        ) as context,
    ):
        assert isinstance(nightly_improvement_loop(context), dg.SkipReason)
        for key in (MANIFEST.run_id, newest, "of-another-home"):
            instance.add_dynamic_partitions("experiments", [key])
        request = nightly_improvement_loop(context)
    assert isinstance(request, dg.RunRequest)
    assert (request.partition_key, request.run_key) == (newest, f"{newest}@2030-01-02T02:00")


@pytest.fixture
def released(tmp_path: Path, mlflow_database: Path) -> World:
    """A home with one version in production, shown in MLflow."""
    shutil.copy(mlflow_database, tmp_path / "mlflow.db")
    world = World(tmp_path)
    world.produce("first")
    Registry.of(tmp_path).reconcile(world.ledger, world.tenant, world.experiment)
    return world


@pytest.mark.parametrize("sensor", [registry_review, registry_reconciler, rights_withdrawn])
def test_before_the_first_release_there_is_nothing_to_do(
    sensor: dg.SensorDefinition, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    assert tick(sensor, instance, tmp_path / "new", None).skip_reason
    assert not (tmp_path / "new").exists()


def test_an_alias_moved_by_hand_is_put_back_reported_and_counted(released: World, instance: dg.DagsterInstance) -> None:
    released.produce("second")
    registry = Registry.of(released.home)
    registry.reconcile(released.ledger, released.tenant, released.experiment)
    quiet = tick(registry_reconciler, instance, released.home, None)
    assert (quiet.cursor, list(quiet.asset_events)) == ("0", [])
    client = registry.models.client
    client.set_registered_model_alias("acme.repair", "production", "1")
    found = tick(registry_reconciler, instance, released.home, quiet.cursor)
    assert found.cursor == "1"
    (event,) = found.asset_events
    assert event.asset_key == dg.AssetKey("production_policy")
    assert "| alias production of acme.repair | version 1 | version 2 | yes |" in str(event.metadata["incidents"].value)
    assert str(client.get_registered_model("acme.repair").aliases["production"]) == "2"
    assert tick(registry_reconciler, instance, released.home, found.cursor).cursor == "1"
    history = CliRunner().invoke(app, ["history", "--home", str(released.home)]).stdout
    assert "alias production of acme.repair was version 1, expected version 2; put right" in history
