"""The sensor of human review acts once per answer, by tag or queue, and tells the reviewer what became of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from review_world import ReviewWorld

from pipelines import review_sensor
from ratchet.release import review
from ratchet.release.certificate import verify_certificate
from ratchet.release.states import State
from resources.mlflow_models import Models
from resources.registry import Registry

NOTHING = "no answer is waiting"


@pytest.fixture
def home(tmp_path: Path, mlflow_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(mlflow_database, tmp_path / "mlflow.db")
    return tmp_path


def test_tag_is_done_in_the_ledger_once_and_shown_in_both_interfaces(home: Path) -> None:
    world = ReviewWorld(home)
    world.tag(" Approve ")
    found = world.evaluate()
    assert world.ledger.state(world.version) is State.CANARY
    assert world.outcome == "approve by Olga (looks right): now canary"
    assert world.tags()["ratchet.state"] == "canary"
    assert str(world.client.get_registered_model(world.name).aliases["canary"]) == world.number()
    assert not world.tags().keys() & {"ratchet.review", "ratchet.review.by", "ratchet.review.reason"}
    (event,) = found.asset_events
    assert isinstance(event, dg.AssetObservation)
    assert event.asset_key == dg.AssetKey("production_policy")
    assert event.partition == world.world.manifest.run_id
    assert event.metadata["state"].value == "canary"
    seq = world.seq()
    assert world.tick(found.cursor) == (NOTHING, "{}")
    assert world.seq() == seq


def test_queue_answer_reaches_canary_under_the_name_that_was_given(home: Path) -> None:
    world = ReviewWorld(home, four_eyes=True)
    (item,) = world.waiting()
    world.reply(item, "approve", "holds in every segment", name="Olga")
    said, cursor = world.tick()
    assert world.ledger.state(world.version) is State.CANARY
    (approval,) = [event for event in world.ledger.history() if event.kind == "approved"]
    assert (approval.by, approval.reason) == ("Olga", "holds in every segment")
    assert said.endswith("by Olga: now canary")
    assert world.outcome == "approve by Olga (holds in every segment): now canary"
    status, trace = world.items()[item]
    assert status == "complete"
    assert trace.info.tags["ratchet.review.outcome"] == world.outcome
    assert world.waiting() == []
    seq = world.seq()
    assert world.tick(cursor) == (NOTHING, "{}")
    assert world.seq() == seq


@pytest.mark.parametrize("name", ["  aDA ", "A​da"])
def test_author_is_refused_under_four_eyes_and_another_person_is_asked(home: Path, name: str) -> None:
    world = ReviewWorld(home, four_eyes=True)
    (item,) = world.waiting()
    world.reply(item, "approve", "mine", name=name)
    world.tick()
    assert world.ledger.state(world.version) is State.CANDIDATE
    assert "four eyes" in world.outcome
    (second,) = world.waiting()
    assert second != item
    assert "four eyes" in world.said(second)[1].splitlines()[0]
    world.reply(second, "approve", name="Olga")
    world.tick()
    assert world.ledger.state(world.version) is State.CANARY


@pytest.mark.parametrize(
    ("answer", "reason", "name", "lack"),
    [
        ("approve", "ok", "", "`reviewer` must name who answers, and the manifest asks for four eyes"),
        ("approve", "", "Olga", "`rationale` must say why"),
        (None, "", "Olga", "`release` says approve or reject"),
        ("perhaps", "ok", "Olga", "`release` says approve or reject"),
    ],
)
def test_incomplete_item_is_told_what_it_lacks_and_asked_again(
    home: Path, answer: str | None, reason: str, name: str, lack: str
) -> None:
    world = ReviewWorld(home, four_eyes=True)
    seq = world.seq()
    (item,) = world.waiting()
    world.reply(item, answer, reason, name=name)
    said, cursor = world.tick()
    assert lack in said
    assert lack in world.outcome
    assert world.seq() == seq
    (again,) = world.waiting()
    assert lack in world.said(again)[1]
    assert world.tick(cursor)[0] == NOTHING


def test_closed_doors_are_all_named_to_the_reviewer(home: Path) -> None:
    world = ReviewWorld(home, qualified=False, signature="required")
    (item,) = world.waiting()
    text = world.said(item)[1]
    for missing in ("the serving engine has not tried it yet", "demands the signature of a trusted key"):
        assert missing in text
    seq = world.seq()
    world.tag("approve")
    world.tick()
    assert world.seq() == seq
    assert world.outcome.startswith("approve by Olga (looks right): refused: ")
    for missing in ("ratchet qualify", "demands the signature of a trusted key", "ratchet keys sign"):
        assert missing in world.outcome


def test_same_answer_again_writes_nothing_more(home: Path) -> None:
    world = ReviewWorld(home)
    world.tag("approve")
    _, cursor = world.tick()
    seq = world.seq()
    world.tag("approve")
    _, cursor = world.tick(cursor)
    assert world.seq() == seq
    assert world.outcome == "approve by Olga (looks right): now canary"
    assert world.tick(cursor) == (NOTHING, "{}")


def test_changed_mind_takes_the_canary_away_and_nothing_brings_it_back(home: Path) -> None:
    world = ReviewWorld(home)
    world.tag("approve")
    world.tick()
    world.tag("Reject", reason="on second thoughts")
    world.tick()
    assert world.ledger.state(world.version) is State.REJECTED
    assert world.outcome == "reject by Olga (on second thoughts): now rejected"
    world.tag("approve", reason="third thoughts")
    world.tick()
    assert world.ledger.state(world.version) is State.REJECTED
    assert "rejected is final" in world.outcome
    assert "ratchet.review" not in world.tags()


def test_reviewed_item_that_is_answered_otherwise_later_is_heard(home: Path) -> None:
    world = ReviewWorld(home)
    (item,) = world.waiting()
    world.reply(item, "approve", name="Olga")
    _, cursor = world.tick()
    world.reply(item, "reject", "I looked again", name="Olga")
    world.tick(cursor)
    assert world.ledger.state(world.version) is State.REJECTED


def test_answer_that_was_taken_back_before_it_was_read_does_nothing(home: Path) -> None:
    from mlflow.genai import review_queues

    from resources import mlflow_queues
    from resources.release_queue import QUEUE

    world = ReviewWorld(home)
    seq = world.seq()
    world.tag("approve")
    world.client.delete_model_version_tag(world.name, world.number(), "ratchet.review")
    (item,) = world.waiting()
    world.reply(item, "approve", name="Olga")
    with mlflow_queues.talking_to(world.registry.models.uri):
        queue = mlflow_queues.find(world.client.get_experiment_by_name(world.name).experiment_id, QUEUE)
        assert queue is not None
        review_queues.set_review_queue_item_status(queue.queue_id, item_id=item, status="pending")
    assert world.tick() == (NOTHING, "{}")
    assert world.seq() == seq


def test_answer_and_outcome_deleted_after_they_were_acted_on_change_nothing(home: Path) -> None:
    world = ReviewWorld(home)
    (item,) = world.waiting()
    world.reply(item, "approve", name="Olga")
    _, cursor = world.tick()
    experiment = world.client.get_experiment_by_name(world.name).experiment_id
    world.client.delete_traces(experiment, trace_ids=[item])
    world.client.delete_model_version_tag(world.name, world.number(), "ratchet.review.outcome")
    seq = world.seq()
    assert world.tick(cursor) == (NOTHING, "{}")
    assert world.seq() == seq
    assert world.ledger.state(world.version) is State.CANARY


def test_outcome_that_mlflow_did_not_take_is_told_later_without_acting_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ReviewWorld(home)
    world.tag("approve", by="Ada", reason="x" * 5000)
    with monkeypatch.context() as broken:

        def away(*_: object) -> None:
            raise ConnectionError("MLflow is away")

        broken.setattr(Registry, "settle", away)
        _, cursor = world.tick()
    assert len(json.loads(cursor)) == 1
    seq = world.seq()
    _, cursor = world.tick(cursor)
    assert cursor == "{}"
    assert world.seq() == seq
    assert world.outcome.endswith("...): now canary")


def test_tick_killed_between_ledger_and_cursor_acts_no_second_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = ReviewWorld(home)
    world.tag("approve")
    with monkeypatch.context() as killed:

        def end(*_: Any) -> None:
            raise KeyboardInterrupt

        killed.setattr(review_sensor, "_observed", end)
        with pytest.raises(KeyboardInterrupt):
            world.tick()
    seq = world.seq()
    assert world.ledger.state(world.version) is State.CANARY
    assert world.tick()[1] == "{}"
    assert world.seq() == seq
    assert world.outcome == "approve by Olga (looks right): now canary"


def test_approval_killed_before_its_certificate_is_completed_by_the_next_tick(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ReviewWorld(home)
    world.tag("approve")
    with monkeypatch.context() as killed:

        def end(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        killed.setattr(review, "_certify", end)
        with pytest.raises(KeyboardInterrupt):
            world.tick()
    seq = world.seq()
    assert not list(world.world.store.names("certificates"))
    world.tick()
    assert world.seq() == seq
    assert verify_certificate(world.world.store, world.ledger, world.version).by == "Olga"
    assert str(world.client.get_registered_model(world.name).aliases["canary"]) == world.number()


def test_while_mlflow_is_away_the_cursor_is_kept_and_the_tick_is_quick(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ReviewWorld(home)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert world.tick('{"an answer": "now canary"}') == (
        "MLflow is away: answers wait there",
        '{"an answer": "now canary"}',
    )


def test_line_that_cannot_be_read_holds_up_no_other_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = ReviewWorld(home)
    world.world.manifest = world.world.manifest.model_copy(update={"experiment": "broken"})
    world.world.candidate("other")
    assert len(world.ledger.lines()) == 2
    world.tag("approve")
    read = Registry.answers

    def some(self: Registry, ledger: Any, tenant: str, experiment: str) -> Any:
        if experiment == "broken":
            raise ConnectionError("no such experiment")
        return read(self, ledger, tenant, experiment)

    monkeypatch.setattr(Registry, "answers", some)
    said, _ = world.tick()
    assert "acme/broken could not be read" in said
    assert world.ledger.state(world.version) is State.CANARY


def test_tag_approves_nothing_under_four_eyes_where_mlflow_has_a_login(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ReviewWorld(home, four_eyes=True)
    monkeypatch.setattr(Models, "reached", lambda _: "login")
    world.tag("approve")
    world.tick()
    assert world.ledger.state(world.version) is State.CANDIDATE
    assert "a tag does not record who set it; answer in the queue" in world.outcome
    world.tag("reject")
    world.tick()
    assert world.ledger.state(world.version) is State.REJECTED
