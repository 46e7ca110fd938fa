"""The release commands: ledger first, MLflow after it, and a command that succeeds though MLflow is down."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import typer
from release_world import AT, World
from typer.testing import CliRunner, Result

from ratchet.cli import release
from ratchet.errors import IntegrityError, TransitionError
from ratchet.release.certificate import verify_certificate
from ratchet.release.evidence import bundle_evidence, latest_bundle, write_bundle
from ratchet.release.records import Version


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    # Nothing listens on port 9: the registry is down, which no command may mind.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    return World(tmp_path)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the projection out where a test is about the ledger alone; it costs seconds."""
    monkeypatch.setattr(release, "project_registry", lambda home: None)


def call(*arguments: str) -> Result:
    app = typer.Typer()
    release.register(app)
    return CliRunner().invoke(app, list(arguments))


def waiting(world: World, name: str = "sft") -> Version:
    version = world.candidate(name)
    decision = world.decision(version, "review")
    world.ledger.apply(version, decision, at=AT)
    bundle = bundle_evidence(
        version, world.manifest, decision, split_lock="a" * 64, datasets={}, grants={}, scorecards={}
    )
    write_bundle(world.store, bundle)
    return version


@pytest.mark.usefixtures("quiet")
def test_approve_promotes_and_leaves_a_certificate_that_verifies(world: World) -> None:
    version = waiting(world)
    result = call("approve", version.id[:10], "--by", "Olga", "--reason", "segment is fine")
    assert result.exit_code == 0, result.output
    assert "approved up to canary, by Olga: segment is fine" in result.output
    assert "staging -> canary" in result.output
    assert world.ledger.state(version) == "canary"
    certificate = verify_certificate(world.store, world.ledger, version)
    bundle = latest_bundle(world.store, version.id)
    assert bundle is not None
    assert bundle.certificate == certificate.digest
    assert [event.reason for event in bundle.approvals] == ["segment is fine"]


@pytest.mark.usefixtures("quiet")
def test_second_approval_goes_on_to_production(world: World) -> None:
    version = waiting(world)
    assert call("approve", "sft", "--by", "Olga", "--reason", "ok").exit_code == 0
    assert call("approve", "sft", "--by", "Olga", "--reason", "canary held", "--to", "production").exit_code == 0
    assert world.ledger.state(version) == "production"
    assert verify_certificate(world.store, world.ledger, version).verdict == "review"


@pytest.mark.usefixtures("quiet")
def test_unknown_target_is_a_usage_error_that_names_the_choices(world: World) -> None:
    waiting(world)
    result = call("approve", "sft", "--by", "Olga", "--reason", "ok", "--to", "live")
    assert result.exit_code == 2
    assert "staging, canary, production" in " ".join(result.output.split())
    assert world.seq == 2


@pytest.mark.usefixtures("quiet")
def test_reject_keeps_who_and_why(world: World) -> None:
    version = waiting(world)
    assert call("reject", "sft", "--by", "Olga", "--reason", "edits tests").exit_code == 0
    assert world.ledger.state(version) == "rejected"
    assert world.ledger.history()[-1].reason == "edits tests"


@pytest.mark.usefixtures("quiet")
def test_refusal_is_one_ratchet_error(world: World) -> None:
    waiting(world)
    call("reject", "sft", "--by", "Olga", "--reason", "no")
    result = call("approve", "sft", "--by", "Olga", "--reason", "yes")
    assert isinstance(result.exception, TransitionError)


@pytest.mark.parametrize("command", [["approve", "sft"], ["reject", "sft"], ["rollback", "repair"]])
def test_who_and_why_are_asked_for(world: World, command: list[str]) -> None:
    result = call(*command)
    assert result.exit_code == 2
    assert "--by" in result.output


def test_rollback_succeeds_while_mlflow_is_down_and_says_so_in_one_line(world: World) -> None:
    world.produce("first")
    world.produce("second")
    result = call("rollback", "repair", "--by", "Olga", "--reason", "latency")
    assert result.exit_code == 0, result.output
    assert "production: first" in result.output
    (line,) = [line for line in result.output.splitlines() if "MLflow" in line]
    assert line.startswith("MLflow is not up to date yet (")
    assert "127.0.0.1" in line


def test_rollback_reaches_mlflow(world: World, monkeypatch: pytest.MonkeyPatch, mlflow_database: Path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    shutil.copy(mlflow_database, world.home / "mlflow.db")
    world.produce("first")
    world.produce("second")
    result = call("rollback", "repair", "--by", "Olga", "--reason", "latency")
    assert "MLflow" not in result.output
    from resources.registry import Registry

    client = Registry.of(world.home).models.client
    (number,) = client.get_registered_model("acme.repair").aliases.values()
    assert client.get_model_version("acme.repair", str(number)).tags["ratchet.name"] == "first"


@pytest.mark.usefixtures("quiet")
def test_unknown_experiment_is_refused_by_name(world: World) -> None:
    result = call("rollback", "nothing", "--by", "Olga", "--reason", "x")
    assert isinstance(result.exception, TransitionError)
    assert "experiment 'nothing'" in str(result.exception)


def test_history_shows_events_slots_and_the_verified_chain(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    world.produce("first")
    result = call("history", "repair")
    assert result.exit_code == 0, result.output
    assert "canary -> production" in " ".join(result.output.split())
    assert "production: first" in result.output
    assert "events, chain verified" in result.output


def test_history_of_nothing_says_so(world: World) -> None:
    assert "has no events yet" in call("history").output


def test_history_refuses_a_changed_ledger(world: World) -> None:
    import sqlite3

    world.produce("first")
    connection = sqlite3.connect(world.home / "release.db")
    connection.execute("DROP TRIGGER events_no_update")
    connection.execute("UPDATE events SET body = replace(body, 'Olga', 'Eve')")
    connection.commit()
    connection.close()
    assert isinstance(call("history").exception, IntegrityError)
