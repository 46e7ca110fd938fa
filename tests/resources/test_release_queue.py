"""The review queue of releases on a real MLflow database: what waits is asked, with all a reviewer needs, and once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from release_world import a_qualification
from review_world import ABOUT, ReviewWorld

from resources import mlflow_queues
from resources.release_queue import QUEUE, REVIEWER


@pytest.fixture
def home(tmp_path: Path, mlflow_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(mlflow_database, tmp_path / "mlflow.db")
    return tmp_path


def test_item_holds_question_description_figures_and_links_that_lead_somewhere(home: Path) -> None:
    world = ReviewWorld(home)
    (item,) = world.waiting()
    asked, text = world.said(item)
    assert asked.startswith(f"May {world.version.label} answer live tasks? The gate says **review**:")
    assert "the lower bound is too low" in asked
    assert ABOUT in text
    assert "nothing: it is qualified for serving" in text
    version = world.client.get_model_version(world.name, world.number())
    experiment = world.client.get_experiment_by_name(world.name).experiment_id
    run = f"#/experiments/{experiment}/runs/{version.run_id}"
    assert f"[release report]({run}/artifacts/report.html)" in text
    assert f"[evidence]({run}/artifacts/evidence.json)" in text
    assert f"[all figures]({run})" in text
    assert f"[the version](#/models/{world.name}/versions/{version.version})" in text
    assert {entry.path for entry in world.client.list_artifacts(version.run_id)} >= {"report.html", "evidence.json"}
    assert f"[Open the review queue](#/experiments/{experiment}/review-queue)" in version.description


def test_showing_again_makes_no_second_item_and_leaves_the_first(home: Path) -> None:
    world = ReviewWorld(home)
    before = world.waiting()
    for _ in range(2):
        world.registry.reconcile(world.ledger, world.world.tenant, world.world.experiment)
    assert world.waiting() == before


def test_versions_that_wait_have_an_item_each_and_none_after_they_moved(home: Path) -> None:
    world = ReviewWorld(home)
    other = world.waits("grpo")
    assert {world.about(item) for item in world.waiting()} == {world.version.id, other.id}
    world.ledger.reject(other, by="Olga", reason="slow")
    world.registry.reconcile(world.ledger, world.world.tenant, world.world.experiment)
    (item,) = world.waiting()
    assert world.about(item) == world.version.id
    traces = world.client.search_traces(locations=[world.client.get_experiment_by_name(world.name).experiment_id])
    assert [trace.info.trace_id for trace in traces] == [item]


def test_item_whose_text_is_no_longer_true_is_made_anew(home: Path) -> None:
    world = ReviewWorld(home, qualified=False)
    (before,) = world.waiting()
    assert f"`ratchet qualify {world.version.id[:12]}`" in world.said(before)[1]
    world.ledger.qualify(a_qualification(world.version))
    world.registry.reconcile(world.ledger, world.world.tenant, world.world.experiment)
    (after,) = world.waiting()
    assert after != before
    assert "nothing: it is qualified for serving" in world.said(after)[1]


def test_candidate_compared_with_what_no_longer_serves_is_not_asked_about(home: Path) -> None:
    world = ReviewWorld(home)
    world.world.produce("better")
    world.registry.reconcile(world.ledger, world.world.tenant, world.world.experiment)
    assert world.waiting() == []


def test_deleted_queue_and_deleted_item_come_back(home: Path) -> None:
    from mlflow.genai import review_queues

    world = ReviewWorld(home)
    (item,) = world.waiting()
    experiment = world.client.get_experiment_by_name(world.name).experiment_id
    world.client.delete_traces(experiment, trace_ids=[item])
    world.registry.reconcile(world.ledger, world.world.tenant, world.world.experiment)
    (second,) = world.waiting()
    assert second != item
    with mlflow_queues.talking_to(world.registry.models.uri):
        queue = mlflow_queues.find(experiment, QUEUE)
        assert queue is not None
        review_queues.delete_review_queue(queue.queue_id)
    world.registry.reconcile(world.ledger, world.world.tenant, world.world.experiment)
    (third,) = world.waiting()
    assert world.about(third) == world.version.id


def test_server_without_login_asks_for_a_name(home: Path) -> None:
    from mlflow.genai import label_schemas

    world = ReviewWorld(home)
    experiment = world.client.get_experiment_by_name(world.name).experiment_id
    with mlflow_queues.talking_to(world.registry.models.uri):
        queue = mlflow_queues.find(experiment, QUEUE)
        assert queue is not None
        schema = label_schemas.get_label_schema(REVIEWER, experiment_id=experiment)
    assert schema.schema_id in queue.schema_ids


def test_trace_that_somebody_else_put_into_the_queue_leaves_it_and_stays(home: Path) -> None:
    import mlflow
    from mlflow.genai import review_queues

    world = ReviewWorld(home)
    experiment = world.client.get_experiment_by_name(world.name).experiment_id
    with mlflow_queues.talking_to(world.registry.models.uri):
        span = mlflow.start_span_no_context("somebody's", inputs="x", experiment_id=experiment)
        span.end(outputs="y")
        mlflow.flush_trace_async_logging()
        queue = mlflow_queues.find(experiment, QUEUE)
        assert queue is not None
        review_queues.add_items_to_review_queue(queue.queue_id, item_ids=[span.trace_id])
    world.registry.reconcile(world.ledger, world.world.tenant, world.world.experiment)
    assert span.trace_id not in world.items()
    found = world.client.search_traces(locations=[experiment])
    assert span.trace_id in [trace.info.trace_id for trace in found]
