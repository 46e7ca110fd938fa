"""The disagreements on a real MLflow server: out as a review queue, answered there, and back in as labels."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judge_endpoint import JudgeServer
from judge_world import drifted, honest, section, with_judge

from pipelines.judge_sensor import judge_drift
from ratchet.loop import judge, judge_queue
from ratchet.loop.context import Run, reopen_run, runs
from ratchet.loop.places import Scope
from resources import review_queue
from resources.home import Home
from resources.mlflow_models import as_global_uri, model_name
from resources.purging import GRANT, TrackingPurge
from resources.registry import Registry

RUBRIC = "edit_quality"


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer(honest) as made:
        yield made


@pytest.fixture(scope="module")
def drifting(server: JudgeServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose judge changes its mind, so that it differs from the experts; copy it, do not write to it."""
    home = tmp_path_factory.mktemp("drifting")
    with with_judge(home, section(server, anchor_labels=0)) as run:
        judge.judge_calibration(run)
        (run.home / "cache" / "judgements.db").unlink()
    return home


@pytest.fixture
def run(
    drifting: Path, server: JudgeServer, tmp_path: Path, mlflow_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """An open run whose queue on the shared server is taken away afterwards: every test has the same experiment."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_url)
    server.answer = drifted
    home = Path(shutil.copytree(drifting, tmp_path / "home"))
    with reopen_run(home, runs(home)[0]) as opened:
        yield opened
        cleared(opened)


def on_server(run: Run) -> Any:
    """MLflow's own functions, set to the run's server."""
    return as_global_uri(Registry.of(run.home).models.uri)


def queue_of(run: Run) -> tuple[Any, str, list[Any]]:
    """The queue as MLflow's public interface shows it: module, id, items."""
    from mlflow.genai import review_queues

    client = Registry.of(run.home).models.client
    experiment = client.get_experiment_by_name(model_name(run.manifest.tenant, run.manifest.experiment))
    name = f"{run.manifest.run_id} {RUBRIC}/1"
    queue = review_queues.get_review_queue(name=name, experiment_id=experiment.experiment_id)
    return review_queues, queue.queue_id, list(review_queues.list_review_queue_items(queue.queue_id, max_results=200))


def cleared(run: Run) -> None:
    with warnings.catch_warnings(), on_server(run):
        warnings.simplefilter("ignore")
        queues, queue_id, items = queue_of(run)
        queues.delete_review_queue(queue_id)
        client = Registry.of(run.home).models.client
        experiment = client.get_experiment_by_name(model_name(run.manifest.tenant, run.manifest.experiment))
        if items:
            client.delete_traces(experiment.experiment_id, trace_ids=[item.item_id for item in items])


def answer(run: Run, at: int, category: str, reason: str, by: str = "boris") -> str:
    """What the review page does when a person answers and marks the item as complete; returns the work's id."""
    import mlflow
    from mlflow.entities import AssessmentSource

    with warnings.catch_warnings(), on_server(run):
        warnings.simplefilter("ignore")
        queues, queue_id, items = queue_of(run)
        trace_id = items[at].item_id
        mlflow.log_feedback(
            trace_id=trace_id, name=RUBRIC, value=category, rationale=reason, source=AssessmentSource("HUMAN", by)
        )
        queues.set_review_queue_item_status(queue_id, item_id=trace_id, status="complete", completed_by=by)
        return str(mlflow.get_trace(trace_id).info.tags[review_queue.ITEM])


def test_every_disagreement_is_an_item_with_the_work_and_both_reasons_side_by_side(run: Run) -> None:
    rows = {row.item_id: row for row in judge_queue.disagreements(run)}
    assert len(rows) > 10
    shown = review_queue.show(run)
    assert shown is not None
    assert (shown.waiting, shown.answered) == (len(rows), 0)
    assert shown.link.endswith("/review-queue")
    import mlflow

    with warnings.catch_warnings(), on_server(run):
        warnings.simplefilter("ignore")
        _, _, items = queue_of(run)
        traces = [mlflow.get_trace(item.item_id) for item in items]
    assert {trace.info.tags[review_queue.ITEM] for trace in traces} == rows.keys()
    for trace in traces:
        row = rows[trace.info.tags[review_queue.ITEM]]
        assert trace.data.spans[0].outputs == {"work": row.work}
        assert "good: exactly one small change" in trace.data.spans[0].inputs["policy"]
        said = {one.name: one for one in trace.info.assessments}
        theirs, its = said[f"{RUBRIC} by the expert"], said[f"{RUBRIC} by the judge"]
        assert (its.value, its.rationale) == (row.judge_category, row.judge_reason)
        assert (theirs.value, theirs.rationale) == (row.expert_category, row.expert_reason)
        assert (its.source.source_type, its.value) != ("HUMAN", theirs.value)
        assert theirs.source.source_type == ("CODE" if row.labels_are == "simulated" else "HUMAN")
        assert trace.info.tags[GRANT] == "workshop-logs"


def test_the_queue_asks_the_rubric_with_its_categories(run: Run) -> None:
    review_queue.show(run)
    from mlflow.genai import label_schemas

    with warnings.catch_warnings(), on_server(run):
        warnings.simplefilter("ignore")
        queues, queue_id, _ = queue_of(run)
        (schema_id,) = queues.get_review_queue(queue_id).schema_ids
        schema = label_schemas.get_label_schema(schema_id=schema_id)
    assert (schema.name, schema.input.options, schema.enable_comment) == (RUBRIC, ["poor", "good"], True)


def test_an_answer_comes_back_as_a_label_once_and_settles_the_item(run: Run) -> None:
    review_queue.show(run)
    before = len(judge.labels_of(run).all())
    item = answer(run, 0, "good", "one line, as it should be")
    assert review_queue.take_in(run).added == 1
    assert review_queue.take_in(run).added == 0
    assert len(judge.labels_of(run).all()) == before + 1
    label = judge.labels_of(run).all()[-1]
    assert (label.item_id, label.category, label.rater, label.simulated) == (item, "good", "boris", False)
    assert (label.reason, label.split) == ("one line, as it should be", judge.split_of(item))
    again = review_queue.show(run)
    assert again is not None
    assert again.answered == 1


def test_an_answer_that_is_not_marked_complete_is_no_label_yet(run: Run) -> None:
    import mlflow
    from mlflow.entities import AssessmentSource

    review_queue.show(run)
    with warnings.catch_warnings(), on_server(run):
        warnings.simplefilter("ignore")
        _, _, items = queue_of(run)
        source = AssessmentSource("HUMAN", "boris")
        mlflow.log_feedback(trace_id=items[0].item_id, name=RUBRIC, value="good", source=source)
    assert review_queue.take_in(run) == (0, ())


def test_the_sensor_takes_answers_in_before_it_looks_and_goes_on_without_mlflow(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dagster as dg

    review_queue.show(run)
    answer(run, 0, "good", "as it should be")
    before = len(judge.labels_of(run).all())

    def tick() -> dg.SensorResult:
        home = {"home": Home(path=str(run.home))}
        with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance, resources=home) as context:
            found = judge_drift(context)
        assert isinstance(found, dg.SensorResult)
        return found

    assert "1 answers came in as labels" in str(tick().skip_reason)
    assert len(judge.labels_of(run).all()) == before + 1
    with monkeypatch.context() as alone:
        alone.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        alone.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        assert "came in" not in str(tick().skip_reason)


def test_an_answer_outside_the_rubric_is_named_and_the_others_come_in(run: Run) -> None:
    review_queue.show(run)
    wrong = answer(run, 0, "superb", "no category")
    answer(run, 1, "poor", "two changes")
    taken = review_queue.take_in(run)
    assert taken.added == 1
    assert taken.refused == (f"'superb' by boris on {wrong[:12]}",)


def test_the_queue_again_is_the_same_queue_and_what_is_settled_leaves_it(run: Run, server: JudgeServer) -> None:
    first = review_queue.show(run)
    assert first is not None
    with warnings.catch_warnings(), on_server(run):
        warnings.simplefilter("ignore")
        before = {item.item_id for item in queue_of(run)[2]}
    assert review_queue.show(run) == first
    with warnings.catch_warnings(), on_server(run):
        warnings.simplefilter("ignore")
        assert {item.item_id for item in queue_of(run)[2]} == before
    # A judge in order again: it differs on nothing but what the noise of the labels turned over.
    server.answer = honest
    (run.home / "cache" / "judgements.db").unlink()
    left = {row.item_id for row in judge_queue.disagreements(run)}
    after = review_queue.show(run)
    assert after is not None
    assert after.waiting == len(left) < first.waiting


def test_an_erasure_takes_the_works_off_the_server(run: Run) -> None:
    review_queue.show(run)
    scope = Scope(run.home, run.manifest.tenant, "workshop-logs", 0.0, (run.manifest.run_id,))
    listed = [item for item in TrackingPurge().listed(scope) if item.kind == "MLflow trace"]
    assert len(listed) == len(judge_queue.disagreements(run))
    other = Scope(run.home, run.manifest.tenant, "another-grant", 0.0, (run.manifest.run_id,))
    assert not [item for item in TrackingPurge().listed(other) if item.kind == "MLflow trace"]
    TrackingPurge().purge(scope)
    assert not [item for item in TrackingPurge().listed(scope) if item.kind == "MLflow trace"]


def test_without_a_judge_or_a_server_that_was_ever_used_nothing_is_asked_of_mlflow(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    review_queue.show(run)
    with monkeypatch.context() as alone:
        alone.delenv("MLFLOW_TRACKING_URI")
        assert review_queue.take_in(run) == (0, ())
    assert not (run.home / "mlflow.db").exists()
