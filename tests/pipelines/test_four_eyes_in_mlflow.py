"""An answer in MLflow by the author of the run is refused where the manifest asks for four eyes, and told so there."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest
from release_world import World

from pipelines.sensors import registry_review
from ratchet.release.states import State
from resources.home import Home
from resources.registry import Registry


@pytest.mark.parametrize(("name", "state"), [("  aDA ", State.CANDIDATE), ("Olga", State.CANARY)])
def test_author_does_not_approve_by_tag(tmp_path: Path, mlflow_database: Path, name: str, state: State) -> None:
    shutil.copy(mlflow_database, tmp_path / "mlflow.db")
    world = World(tmp_path, four_eyes=True)
    version = world.candidate("sft")
    world.ledger.apply(version, world.decision(version, "review"))
    registry = Registry.of(tmp_path)
    registry.reconcile(world.ledger, world.tenant, world.experiment)
    client, model = registry.models.client, f"{world.tenant}.{world.experiment}"
    for key, value in {".by": name, ".reason": "mine", "": "approve"}.items():
        client.set_model_version_tag(model, "1", f"ratchet.review{key}", value)
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance, None, resources={"home": Home(path=str(tmp_path))}) as context,
    ):
        registry_review(context)
    assert world.ledger.state(version) is state
    outcome = client.get_model_version(model, "1").tags["ratchet.review.outcome"]
    assert ("four eyes" in outcome) is (state is State.CANDIDATE)
