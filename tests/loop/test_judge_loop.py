"""The judge of a run: calibrated once, weight only while it holds, frozen by drift, labelled again by experts."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest
from judge_endpoint import JudgeServer
from judge_world import PURPOSES, by_an_expert, drifted, honest, section, with_judge
from partner_world import end
from typer.testing import CliRunner

from pipelines.judge_sensor import judge_drift as sensor
from ratchet.cli.main import app
from ratchet.errors import RatchetError, RightsError, TrainingError
from ratchet.loop import data, judge, judge_drift, judge_queue, places
from ratchet.loop.context import Run, open_run, reopen_run, runs
from ratchet.rewards.compose import judge_outcome
from resources.home import Home


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    with JudgeServer(honest) as made:
        yield made


@pytest.fixture(scope="module")
def calibrated(server: JudgeServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a calibrated judge; copy it, do not write to it."""
    home = tmp_path_factory.mktemp("calibrated")
    with with_judge(home, section(server)) as run:
        judge.judge_calibration(run)
    return home


@pytest.fixture
def run(calibrated: Path, server: JudgeServer, tmp_path: Path) -> Iterator[Run]:
    server.answer = honest
    home = Path(shutil.copytree(calibrated, tmp_path / "home"))
    with reopen_run(home, runs(home)[0]) as opened:
        yield opened


def drift(run: Run, server: JudgeServer) -> judge_drift.Look:
    """Let the judge change its mind, and look at it on fresh labels."""
    judge.labels_of(run).add(by_an_expert(run, 14))
    server.answer = drifted
    look = judge_drift.look(run)
    assert look is not None
    return look


def test_a_calibration_is_made_once_and_says_that_its_labels_are_simulated(run: Run, server: JudgeServer) -> None:
    calls = len(server.seen)
    again = judge.judge_calibration(run)
    found = judge.open_calibration(run)
    assert found is not None
    assert found.passed
    assert found.simulated
    assert again.reused
    assert "simulated" in again.summary
    assert all(row["labels"] == "simulated" for row in again.rows if not row["figure"].startswith("bias"))
    assert len(server.seen) == calls


def test_the_stage_answers_every_question_of_bias_or_says_why_it_does_not_arise(run: Run) -> None:
    rows = {row["figure"]: row for row in judge.judge_calibration(run).rows if row["figure"].startswith("bias")}
    assert [*rows] == ["bias: position", "bias: verbosity", "bias: self_preference", "bias: injection"]
    assert "not applicable: the rubric grades one work at a time" in rows["bias: position"]["value"]
    assert "not applicable: no agent is named" in rows["bias: self_preference"]["value"]
    for kind in ("verbosity", "injection"):
        assert "items" in rows[f"bias: {kind}"]["labels"]
    shown = CliRunner().invoke(app, ["judge", "show", "--home", str(run.home)])
    assert "bias: position: not applicable" in shown.output


def test_a_judge_whose_own_family_is_named_is_audited_for_preferring_it(server: JudgeServer, tmp_path: Path) -> None:
    """The random agent is said to be its kin; the judge grades by the work, so that nothing but few items is found."""
    with with_judge(tmp_path, section(server, own_agents=["random"], calibration_labels=40)) as run:
        rows = {row["figure"]: row for row in judge.judge_calibration(run).rows}
        groups = {item.group for item in judge.corpus(run).items.values()}
    assert groups == {"expert", "random"}
    assert "not applicable" not in str(rows["bias: self_preference"]["value"])
    assert "biased" not in rows["bias: self_preference"]["labels"]


def test_a_calibrated_judge_pays_its_share_and_only_its_share(run: Run) -> None:
    grader = judge_drift.grader_of(run)
    assert grader is not None
    task = run.training_tasks()[0]
    probes = run.environment.probes(task)
    verdict = run.environment.verify(task, probes["honest"])
    spec = run.manifest.reward
    paid = judge_outcome(
        task, probes["honest"], verdict, calls=0, malformed=0, spec=spec, grade=grader.grade(task, probes["honest"])
    )
    grade = paid.evidence["parts"]["edit_quality"]["value"]
    assert paid.reward == pytest.approx((1.0 + 0.1 * grade) / 1.1)
    with pytest.raises(RatchetError, match="no grade by a calibrated judge"):
        judge_outcome(task, probes["honest"], verdict, calls=0, malformed=0, spec=spec)


def test_an_invalid_judgement_makes_the_outcome_invalid_and_never_0(run: Run, server: JudgeServer) -> None:
    grader = judge_drift.grader_of(run)
    assert grader is not None
    grader.memory = None
    task = run.training_tasks()[0]
    honest_work = run.environment.probes(task)["honest"]
    server.answer = lambda shown: ("splendid", "no category of the rubric")
    outcome = judge_outcome(
        task, honest_work, run.environment.verify(task, honest_work), calls=0, malformed=0,
        spec=run.manifest.reward, grade=grader.grade(task, honest_work),
    )  # fmt: skip
    assert outcome.reward is None
    assert not outcome.accepted
    assert "judge edit_quality" in str(outcome.score)


def test_drift_freezes_and_stops_the_training_that_needs_the_judge(run: Run, server: JudgeServer) -> None:
    assert judge_drift.require_calibrated(run) is not None
    look = drift(run, server)
    assert look.check.state == "freeze"
    assert look.became_wrong > 0
    with pytest.raises(TrainingError, match=r"FROZEN, check 1: freeze.*simulated labels.*recalibrate_judge"):
        judge_drift.require_calibrated(run)
    with pytest.raises(TrainingError, match="FROZEN"):
        judge_drift.grader_of(run)


def test_a_judge_in_order_is_not_frozen_and_a_label_counts_in_one_look_only(run: Run) -> None:
    assert judge_drift.look(run) is None
    judge.labels_of(run).add(by_an_expert(run, 14))
    look = judge_drift.look(run)
    assert look is not None
    assert look.check.n == 14
    assert look.check.state in ("ok", "warn")
    assert judge_drift.look(run) is None
    assert judge_drift.require_calibrated(run) is not None


def test_a_recalibration_is_another_generation_on_labels_that_calibrated_none_before(
    run: Run, server: JudgeServer
) -> None:
    drift(run, server)
    first = {label.item_id for label in judge.chosen_labels(run, "calibration")}
    assert judge.recalibrate(run, "it froze") == 2
    assert judge.recalibrate(run, "asked again before it was made") == 2
    with pytest.raises(TrainingError, match="no calibration"):
        judge_drift.require_calibrated(run)
    server.answer = honest
    judge.judge_calibration(run)
    second = {label.item_id for label in judge.chosen_labels(run, "calibration")}
    assert not first & second
    assert judge_drift.require_calibrated(run) is not None


def test_a_judge_that_is_not_calibrated_trains_nothing(server: JudgeServer, run: Run, tmp_path: Path) -> None:
    judge.recalibrate(run, "to see what a judge without agreement does")
    server.answer = drifted
    (run.home / "cache" / "judgements.db").unlink()
    assert "NOT calibrated" in judge.judge_calibration(run).summary
    with pytest.raises(RatchetError, match="only a calibrated judge has weight"):
        judge_drift.require_calibrated(run)


def test_without_the_purpose_nothing_is_shown_to_a_judge(server: JudgeServer, tmp_path: Path) -> None:
    with with_judge(tmp_path, section(server), PURPOSES[:-1]) as run:
        calls = len(server.seen)
        with pytest.raises(RightsError, match="calibrate"):
            judge.judge_calibration(run)
        assert len(server.seen) == calls


def test_the_queue_goes_out_with_both_reasons_and_comes_back_as_labels(run: Run, server: JudgeServer) -> None:
    drift(run, server)
    out = run.home / "queue.csv"
    place = ["--home", str(run.home)]
    done = CliRunner().invoke(app, ["judge", "queue", str(out), "--fresh", "2", *place])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    differ = [row for row in rows if row["why"] == "judge and experts differ"]
    assert differ
    assert len(rows) - len(differ) == 2
    assert all(row["judge_reason"] and row["expert_reason"] and row["work"] for row in differ)
    assert {row["labels_are"] for row in differ} <= {"simulated", "by persons"}
    rows[0] |= {"category": "poor", "rater": "boris", "reason": "two changes in one"}
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    out.write_text(sink.getvalue())
    for expected in ("1 new labels", "0 new labels"):
        done = CliRunner().invoke(app, ["judge", "labels", str(out), *place])
        assert expected in done.output
    (found,) = [label for label in judge.labels_of(run).all() if label.rater == "boris"][:1]
    assert (found.item_id, found.category, found.simulated) == (rows[0]["item_id"], "poor", False)
    assert [one.rater for one in judge.standing(run) if one.item_id == found.item_id and one.simulated] == []


def test_labels_of_foreign_items_are_refused_and_none_is_added(run: Run) -> None:
    text = "item_id,category,rater\nnobody,poor,anna\n"
    with pytest.raises(RatchetError, match="handed in"):
        judge_queue.take_labels(run, text, run.now())


def test_the_sensor_freezes_once_and_asks_for_one_recalibration(run: Run, server: JudgeServer) -> None:
    def tick(instance: dg.DagsterInstance, cursor: str | None) -> dg.SensorResult:
        with dg.build_sensor_context(instance, cursor, resources={"home": Home(path=str(run.home))}) as context:
            found = sensor(context)
        assert isinstance(found, dg.SensorResult)
        return found

    with dg.DagsterInstance.ephemeral() as instance:
        first = tick(instance, None)
        assert not first.run_requests
        judge.labels_of(run).add(by_an_expert(run, 14))
        server.answer = drifted
        second = tick(instance, first.cursor)
        assert [one.partition_key for one in second.run_requests or ()] == [run.manifest.run_id]
        assert [event.metadata["state"].value for event in second.asset_events] == ["freeze"]
        third = tick(instance, second.cursor)
        assert not third.run_requests
        assert not third.asset_events
    with pytest.raises(TrainingError, match="FROZEN"):
        judge_drift.require_calibrated(run)


def test_what_judges_said_is_a_place_that_an_erasure_lists_and_empties(run: Run) -> None:
    manifest = run.manifest
    scope = places.Scope(run.home, manifest.tenant, "workshop-logs", 0.0, (manifest.run_id,))
    found = [item for item in places.listed(scope) if item.name == "cache/judgements.db"]
    assert [item.kind for item in found] == ["cache"]
    places.emptied(scope)
    with closing(sqlite3.connect(run.home / "cache" / "judgements.db")) as memory:
        assert memory.execute("SELECT count(*) FROM judgements").fetchone() == (0,)


def test_no_content_of_a_work_is_kept_beside_its_calibration(run: Run) -> None:
    works = [item.deliverable for item in judge.corpus(run).items.values()]
    kept = [run.store.read(name).decode() for name in run.store.names(run.name("judge", "1"))]
    assert kept
    assert not [work for work in works for text in kept if json.dumps(work)[1:-1] in text and "\n" in work]


def test_a_judge_without_weight_that_cannot_be_calibrated_stops_no_loop(server: JudgeServer, run: Run) -> None:
    """The manifest asks for a judge of weight 0, and the grant on record does not allow it."""
    weightless = run.manifest.reward.judge.model_copy(update={"weight": 0.0})  # type: ignore[union-attr]
    reward = run.manifest.reward.model_copy(update={"judge": weightless})
    with open_run(run.home, run.manifest.model_copy(update={"reward": reward})) as other:
        other.store.create(other.name("tasks.jsonl"), run.store.read(run.name("tasks.jsonl")))
        data.split_lock(other)
        end(other, grant_id="workshop-logs")
        said = judge.judge_calibration(other)
        assert "not calibrated; weight 0" in said.summary
        assert "workshop-logs" in said.summary
        assert judge_drift.require_calibrated(other) is None
