"""The sensor of live tasks, on a real store, ledger and MLflow database: once per outcome, and once per question."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import dagster as dg
import pytest
from mlflow_server import migrated_database
from release_world import AT, World
from serving_world import Stream, outcome

from pipelines.canary_sensor import canary_regression
from ratchet.release.live import LiveOutcome
from ratchet.release.states import State
from ratchet.serving.outcomes import Spool
from resources.home import Home
from resources.registry import Registry


@pytest.fixture(scope="module", autouse=True)
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database whose migrations are done."""
    Line.template = migrated_database(tmp_path_factory.mktemp("template"))
    return Line.template


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


class Line:
    """A canary with live outcomes, and the sensor that is ticked by hand."""

    template: Path

    def __init__(self, home: Path, instance: dg.DagsterInstance, **release: object) -> None:
        home.mkdir(exist_ok=True)
        shutil.copy(self.template, home / "mlflow.db")
        self.world = World(home, canary_share=0.5, **release)
        self.instance, self.cursor, self.number = instance, None, 0
        self.version = self.world.candidate("sft")
        self.world.ledger.apply(self.version, self.world.decision(self.version), at=AT)
        if self.state is not State.CANARY:
            self.world.ledger.approve(self.version, by="Olga", reason="good", upto="canary", at=AT)
        self.spool = Spool(home, self.world.store, self.world.tenant, self.world.experiment)

    @property
    def state(self) -> State:
        return self.world.ledger.state(self.version)

    def live(self, count: int, *, canary: float, production: float = 0.7) -> None:
        stream = Stream(self.version.id, canary=canary, production=production, seed=self.number)
        self.keep(islice(stream, count))

    def keep(self, outcomes: Iterator[LiveOutcome]) -> None:
        for one in outcomes:
            self.number += 1
            self.spool.add(one.model_copy(update={"live_id": f"t{self.number}"}))
        self.spool.flush()

    def tick(self) -> dg.SensorResult:
        home = Home(path=str(self.world.home))
        with dg.build_sensor_context(self.instance, self.cursor, resources={"home": home}) as context:
            found = canary_regression(context)
        assert isinstance(found, dg.SensorResult)
        self.cursor = found.cursor
        return found

    def tags(self) -> dict[str, str]:
        registry = Registry.of(self.world.home)
        (item,) = registry.models.versions(f"{self.world.tenant}.{self.world.experiment}")
        return dict(item.tags)


def test_each_outcome_is_looked_at_once_and_nothing_is_asked_before_a_verdict(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    line = Line(tmp_path, instance)
    assert line.tick().asset_events
    line.live(40, canary=0.7)
    (event,) = line.tick().asset_events
    assert isinstance(event, dg.AssetObservation)
    assert "question to the owner" not in event.metadata
    assert not line.tick().asset_events
    assert json.loads(line.cursor or "")["acme/repair"]["part"] == 1
    line.live(40, canary=0.7)
    (event,) = line.tick().asset_events
    assert int(str(event.metadata["pairs"].value)) > 20
    assert line.state is State.CANARY


def test_a_regression_is_rolled_back_by_itself_under_the_owners_rule(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    line = Line(tmp_path, instance, on_regression="roll_back")
    line.live(1500, canary=0.4)
    (event,) = line.tick().asset_events
    assert line.state is State.ROLLED_BACK
    assert "question to the owner" not in event.metadata
    assert [one.by for one in line.world.ledger.history()[-2:]] == ["rule:canary"] * 2
    assert (line.tags()["ratchet.state"], line.tags()["ratchet.question"]) == ("rolled_back", "nothing")
    events = len(line.world.ledger.history())
    line.live(200, canary=0.4)
    assert not line.tick().asset_events
    assert len(line.world.ledger.history()) == events


def test_without_the_rule_the_owner_is_asked_once(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    line = Line(tmp_path, instance, on_regression="ask")
    line.live(1500, canary=0.4)
    (event,) = line.tick().asset_events
    assert "question to the owner" in event.metadata
    assert line.state is State.CANARY
    assert line.tags()["ratchet.question"].startswith("roll_back: ")
    assert line.world.ledger.history()[-1].kind == "watched"
    line.live(200, canary=0.4)
    (again,) = line.tick().asset_events
    assert "question to the owner" not in again.metadata
    assert [one.kind for one in line.world.ledger.history()].count("watched") == 1


def test_what_proved_good_goes_on_as_far_as_the_rule(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    line = Line(tmp_path, instance, authorised_rule="production")
    line.live(1500, canary=0.95)
    line.tick()
    assert line.state is State.PRODUCTION
    assert line.world.ledger.window(line.version) is None
    assert line.tags()["ratchet.canary"].startswith("promote: ")


def test_a_regression_in_production_restores_what_was_there(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    line = Line(tmp_path, instance, authorised_rule="production", on_regression="roll_back")
    line.live(1500, canary=0.95)
    line.tick()
    assert line.state is State.PRODUCTION
    line.keep(outcome("t", "production", line.version.id, None, number % 10 < 9) for number in range(400))
    line.tick()
    assert line.state is State.PRODUCTION
    line.keep(outcome("t", "production", line.version.id, None, number % 10 < 4) for number in range(800))
    line.tick()
    assert line.state is State.ROLLED_BACK
    assert line.world.ledger.current("acme", "repair").production is None


def test_a_sensor_that_starts_late_or_loses_its_cursor_comes_to_the_same(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    line = Line(tmp_path, instance, on_regression="roll_back")
    for _ in range(15):
        line.live(100, canary=0.4)
        line.tick()
    other = Line(tmp_path / "late", instance, on_regression="roll_back")
    for number in range(15):
        other.number = 100 * number
        other.live(100, canary=0.4)
    other.tick()
    assert line.state is other.state is State.ROLLED_BACK
    noted = [one.world.ledger.history()[-2].reason for one in (line, other)]
    assert noted[0] == noted[1]


def test_mlflow_that_is_away_keeps_no_regression_from_being_rolled_back(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(tmp_path, instance, on_regression="roll_back")
    line.live(1500, canary=0.4)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    line.tick()
    assert line.state is State.ROLLED_BACK
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    Registry.of(tmp_path).reconcile(line.world.ledger, "acme", "repair")
    assert line.tags()["ratchet.state"] == "rolled_back"


def test_a_damaged_part_is_told_and_looked_at_again(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    line = Line(tmp_path, instance)
    line.tick()
    line.world.store.create("live/acme/repair/0000000001.jsonl", b"{}\n")
    found = line.tick()
    assert "every line must be a live outcome" in str(found.skip_reason)
    assert json.loads(line.cursor or "")["acme/repair"]["part"] == 0
