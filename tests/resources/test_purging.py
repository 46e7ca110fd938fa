"""What an erasure takes from a real MLflow server, and what it leaves there."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
from rights_world import PARTNER, WORD, RightsWorld, now

from ratchet.loop.erasing import erase, plan
from resources.mlflow_models import VERSION
from resources.purging import GRANT, TrackingPurge
from resources.registry import Registry


@pytest.fixture
def world(tmp_path: Path, mlflow_url: str, monkeypatch: pytest.MonkeyPatch) -> RightsWorld:
    """A home whose versions are shown on the server that all tests share."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_url)
    made = RightsWorld(tmp_path, "purging")
    made.produce()
    Registry.of(tmp_path).reconcile(made.ledger, made.tenant, made.experiment)
    return made


def trace(registry: Registry, experiment_id: str, tags: dict[str, str]) -> str:
    client = registry.models.client
    with warnings.catch_warnings():
        # MLflow warns, when it first traces, of a type hint of its own.
        warnings.simplefilter("ignore")
        import mlflow

        # Setting it sets the environment variable too, by which the registry of a home is found.
        before, variable = mlflow.get_tracking_uri(), os.environ["MLFLOW_TRACKING_URI"]
        mlflow.set_tracking_uri(registry.models.uri)
        try:
            span = client.start_trace("episode", inputs={"text": WORD}, tags=tags, experiment_id=experiment_id)
            client.end_trace(span.request_id, outputs={"text": WORD})
            mlflow.flush_trace_async_logging()
        finally:
            mlflow.set_tracking_uri(before)
            os.environ["MLFLOW_TRACKING_URI"] = variable
    return str(span.request_id)


def test_artifacts_and_traces_go_and_checkpoints_and_traces_of_other_grants_stay(
    world: RightsWorld, tmp_path: Path
) -> None:
    registry = Registry.of(world.home)
    client = registry.models.client
    experiment_id = registry.models.experiment(f"{world.tenant}.{world.experiment}")
    version = world.ledger.find("sft")
    model = registry.models.logged(experiment_id, version.id)
    assert model is not None
    quoting = tmp_path / "notes.txt"
    quoting.write_text(WORD)
    client.log_artifact(str(model.source_run_id), str(quoting))
    client.log_model_artifact(model.model_id, str(quoting))
    gone = [trace(registry, experiment_id, tags) for tags in ({}, {GRANT: PARTNER})]
    kept = trace(registry, experiment_id, {GRANT: "g"})
    world.event("withdraw")
    hooks = [TrackingPurge()]
    names = {item.name for item in plan(world.home, PARTNER, now(), hooks).items if item.kind.startswith("MLflow")}
    assert names == {f"run {model.source_run_id}/notes.txt", f"model {model.model_id}/notes.txt", *gone}
    done = erase(world.home, PARTNER, by="steward", reason="asked for", at=now(), purges=hooks)
    assert done.certificate.counts["MLflow artifact"] == 2
    assert done.certificate.counts["MLflow trace"] == 2
    assert [one.path for one in client.list_artifacts(str(model.source_run_id))] == []
    assert [one.path for one in client.list_logged_model_artifacts(model.model_id)] == ["checkpoint"]
    left = client.search_traces(locations=[experiment_id], include_spans=False)
    assert [one.info.trace_id for one in left] == [kept]
    items = Registry.of(world.home).models.versions(f"{world.tenant}.{world.experiment}")
    assert {item.tags[VERSION] for item in items} == set(world.ledger.versions())
