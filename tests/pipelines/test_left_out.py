"""A method that finds nothing to learn from: its candidate is left out on every surface, and the others go on.

One small loop by Dagster, whose policies start as random weights. One method of it finds no log, one starts from that
one's candidate, and one learns from pairs of logged trajectories, an expert's and a random agent's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from small_loop import Loop, small_manifest
from typer.testing import CliRunner

from pipelines.launch import unwrapped
from ratchet.cli.main import app
from ratchet.errors import IntegrityError, TrainingError
from ratchet.loop import deciding, learning
from ratchet.loop.context import reopen_run
from ratchet.loop.evidence import bundled
from ratchet.loop.leaving_out import all_left_out
from ratchet.release import recompute
from resources.mlflow_models import LEFT_OUT, NOTE, model_name
from resources.registry import Registry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NOBODY = {"name": "unread", "method": "sft", "start": "base", "data": {"policies": ["nobody"]}}
AFTER = {"name": "after", "method": "orpo", "start": "unread", "data": {"policies": ["expert", "random"]}}
PAIRED = {"name": "paired", "method": "dpo", "start": "base", "data": {"policies": ["expert", "random"]}}
SAMPLED = {"name": "sampled", "method": "dpo", "start": "base", "data": {"tasks": 2, "rollouts_per_task": 2}}
FLAT = {
    "name": "flat",
    "method": "grpo",
    "start": "base",
    "settings": {"steps": 1, "prompts_per_step": 2, "group_size": 2, "validate_every": 1},
}
LOGS = [
    {"agent": "expert", "episodes": 24, "format": "atif"},
    {"agent": "random", "episodes": 24, "format": "atif"},
]
JOBS = ("prepare_experiment", "ingest_trajectories", "improve_policy")
NO_LOG = "no accepted trajectory: at least one of a training task must be there to learn from"


def manifest(*methods: dict[str, Any]) -> Any:
    # No judge: what it does is shown elsewhere, and its training takes longer than all of this.
    return small_manifest(methods=list(methods), logs=LOGS, **{"reward.judge": None})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    folder = tmp_path_factory.mktemp("left-out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(folder))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        made = Loop(folder, manifest(NOBODY, AFTER, PAIRED))
        for job in JOBS:
            assert made.launch(job).success
        yield made
        made.instance.dispose()


def shown(loop: Loop, asset: str) -> dict[str, Any]:
    event = loop.instance.get_latest_materialization_event(dg.AssetKey(asset))
    assert event is not None
    assert event.asset_materialization is not None
    return {key: value.value for key, value in event.asset_materialization.metadata.items()}


def report(loop: Loop, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["report", loop.manifest.run_id, *arguments, "--home", str(loop.home)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_others_are_trained_judged_and_decided_on(loop: Loop) -> None:
    body = json.loads(report(loop, "--json"))
    assert [one["name"] for one in body["policies"]] == ["baseline", "paired"]
    assert body["decision"]["candidate"] == "paired"
    assert [one["candidate"] for one in body["training_time"]] == ["paired"]
    with reopen_run(loop.home, loop.manifest.run_id) as run:
        assert not run.store.exists(run.name("policies", "after", "policy.json"))


def test_report_page_and_csv_say_who_was_left_out_and_why(loop: Loop) -> None:
    body = json.loads(report(loop, "--json"))
    assert [(one["name"], one["method"], one["start"]) for one in body["left_out"]] == [
        ("unread", "sft", "base"),
        ("after", "orpo", "unread"),
    ]
    assert body["left_out"][0]["reason"].startswith(NO_LOG)
    said = report(loop)
    assert f"left out  unread (sft): {NO_LOG}" in said
    assert "left out  after (orpo): no start: the candidate that it starts from was left out" in said
    page = unescape((loop.home / "reports" / f"{loop.manifest.run_id}.html").read_text(encoding="utf-8"))
    assert "Candidates that were left out" in page
    assert "Candidatos omitidos" in page
    assert "debe haber al menos una de una tarea de entrenamiento" in page
    report(loop, "--csv", str(loop.home / "report.csv"))
    lines = (loop.home / "report.csv").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("unread,left out,,seen,no accepted trajectory")]


def test_dagster_shows_the_reason_on_the_methods_asset_and_on_the_rows(loop: Loop) -> None:
    assert shown(loop, "sft_policy")["left_out"].startswith(NO_LOG)
    assert shown(loop, "sft_policy")["summary"].startswith(f"left out: {NO_LOG}")
    assert shown(loop, "orpo_policy")["left_out"].startswith("no start")
    assert "left out: unread: no accepted trajectory" in shown(loop, "heldout_rows")["summary"]


def test_mlflow_shows_a_failed_run_and_the_version_names_who_was_left_out(loop: Loop) -> None:
    registry = Registry.of(loop.home)
    client, name = registry.models.client, model_name(loop.manifest.tenant, loop.manifest.experiment)
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"baseline", "paired", "unread", "after"}
    assert (runs["unread"].info.status, runs["paired"].info.status) == ("FAILED", "FINISHED")
    assert runs["unread"].data.tags[LEFT_OUT] == "unread"
    assert runs["unread"].data.tags[NOTE].startswith(f"Left out: {NO_LOG}")
    (version,) = registry.models.versions(name)
    assert f"Left out of the comparison: unread (sft): {NO_LOG}" in version.description


def test_a_second_launch_reuses_everything_and_logs_nothing_twice(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_HOME", str(loop.home))
    for job in JOBS:
        assert loop.launch(job).success
    assert all(shown(loop, f"{method}_policy")["reused"] for method in ("sft", "orpo", "dpo"))
    client = Registry.of(loop.home).models.client
    experiment = client.get_experiment_by_name(model_name(loop.manifest.tenant, loop.manifest.experiment))
    assert experiment is not None
    assert len(client.search_runs([experiment.experiment_id])) == 4


def test_the_decision_can_be_made_again_and_a_card_that_was_taken_away_is_missed(loop: Loop) -> None:
    def no_right(*_: Any) -> Any:
        raise AssertionError("a decision is made again from its inputs")

    with reopen_run(loop.home, loop.manifest.run_id) as run:
        whole = bundled(run, deciding.candidate_version(run), deciding.open_decision(run))
        assert [file.about for file in whole.of("left_out")] == ["unread", "after"]
        assert "decided again" in recompute.decided(recompute.Opened(run.store, whole, no_right, {}))
        parts = {name: getattr(whole, name) for name in type(whole).model_fields}
        parts["files"] = tuple(one for one in whole.files if (one.role, one.about) != ("left_out", "unread"))
        short = type(whole).issue(**parts)
        with pytest.raises(IntegrityError, match=r"neither a scorecard nor a reason is \['unread'\]"):
            recompute.decided(recompute.Opened(run.store, short, no_right, {}))


def test_where_no_candidate_is_left_one_error_names_every_reason_and_a_later_launch_tries_again(home: Path) -> None:
    loop = Loop(home, manifest(SAMPLED, FLAT, {**PAIRED, "candidate": False}))
    for job in JOBS[:2]:
        assert loop.launch(job).success
    with pytest.raises(TrainingError) as refused:
        loop.launch("improve_policy")
    error = unwrapped(refused.value)
    assert error is not None
    assert f"candidates of {loop.manifest.run_id} is '0 of 3'" in str(error)
    assert "'sampled' no pair: a pair is an accepted and a rejected trajectory of one task" in str(error)
    assert "'flat' no advantage in 1 steps: in some group the rewards of two valid episodes must differ" in str(error)
    assert "run again" in error.remedy
    with reopen_run(home, loop.manifest.run_id) as run:
        assert [one.name for one in all_left_out(run)] == ["sampled", "flat"]
        assert not run.store.exists(run.name("incumbent.json")), "no held-out task was opened"
        (stage,) = learning.train_method(run, "dpo")[:1]
        assert (stage.reused, stage.summary[:8]) == (False, "left out")
    loop.instance.dispose()
