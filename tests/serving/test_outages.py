"""A rollback while MLflow and the object store are really down: the ledger alone carries it, and all agree later.

The servers are real (MLflow, SeaweedFS) and killed as a power cut would; `ratchet serve` and `ratchet rollback` are the
real commands, each in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from mlflow_server import migrated_database, running_server
from seaweed_server import running_seaweed
from server_process import await_ready, free_port, started
from serving_http import Client
from serving_world import ServingWorld

from ratchet.loop.context import open_run
from ratchet.policies.record import seal
from ratchet.store import open_store
from resources.registry import Registry

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 30.0
"""What the switch may take on a machine that is busy with other tests; what it took is printed."""


@pytest.fixture
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return migrated_database(tmp_path_factory.mktemp("template"))


@contextlib.contextmanager
def serving(home: Path, line: str, environment: dict[str, str]) -> Iterator[Client]:
    """`ratchet serve` in a process of its own."""
    port, log = free_port(), home / "serve.log"
    command = [sys.executable, "-m", "ratchet.cli", "serve", line, "--home", str(home), "--port", str(port)]
    client = Client(f"http://127.0.0.1:{port}")

    def healthy() -> bool:
        with contextlib.suppress(requests.ConnectionError):
            return client.get("/health")["status"] == "ok"
        return False

    command += ["--poll-ms", "50"]
    with (
        contextlib.closing(client.session),
        started(command, folder=ROOT, environment=environment, log=log, end=signal.SIGINT) as process,
    ):
        await_ready(process, healthy, log, 240)
        yield client


def aliases(world: ServingWorld) -> dict[str, str]:
    """Policies by alias, as MLflow shows them."""
    registry = Registry.of(world.home)
    client, name = registry.models.client, f"{world.tenant}.{world.experiment}"
    held = client.get_registered_model(name).aliases
    return {alias: client.get_model_version(name, str(number)).tags["ratchet.name"] for alias, number in held.items()}


def rolled_back(world: ServingWorld, client: Client, environment: dict[str, str]) -> tuple[str, float, Any]:
    """Roll back by the command; returns what it said, and how long after the ledger's write who answered."""
    before = client.chat()["model"]
    first: list[tuple[float, Any]] = []

    def watch() -> None:
        while not first:
            answer = client.chat()
            if answer["model"] != before:
                first.append((time.time(), answer))

    watcher = threading.Thread(target=watch)
    watcher.start()
    command = [sys.executable, "-m", "ratchet.cli", "rollback", world.experiment, "--by", "Olga", "--reason", "worse"]
    done = subprocess.run(
        [*command, "--home", str(world.home)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    watcher.join(timeout=SECONDS)
    assert first, "the previous version never answered"
    (event,) = [one for one in world.ledger.history() if one.state == "rolled_back"]
    at, answer = first[0]
    return done.stdout + done.stderr, at - datetime.fromisoformat(event.at).astimezone(UTC).timestamp(), answer


@pytest.mark.slow
def test_a_rollback_works_while_mlflow_and_the_object_store_are_down_and_is_shown_later(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, database = tmp_path / "home", tmp_path / "mlflow.db"
    home.mkdir()
    shutil.copy(template, database)
    with running_seaweed(tmp_path / "seaweed") as weed, contextlib.ExitStack() as servers:
        for key, value in weed.environment().items():
            monkeypatch.setenv(key, value)
        monkeypatch.setenv("RATCHET_STORE", weed.fresh_place())
        monkeypatch.setenv("MLFLOW_TRACKING_URI", servers.enter_context(running_server(tmp_path, database)))
        world = ServingWorld(home, store=open_store(home))
        with open_run(home, world.manifest) as run:
            run.store.create(run.name("policies", "baseline", "policy.json"), seal(world.baseline))
        first, second = world.produce("first"), world.produce("second")
        Registry.of(home).reconcile(world.ledger, world.tenant, world.experiment)
        assert aliases(world) == {"production": "second", "previous-production": "first"}
        with serving(home, f"{world.tenant}/{world.experiment}", dict(os.environ)) as client:
            assert client.chat()["model"] == second.id
            servers.close()
            weed.kill()
            said, seconds, answer = rolled_back(world, client, dict(os.environ))
            assert "MLflow is not up to date yet" in said
            assert (answer["model"], answer["system_fingerprint"]) == (first.id, first.policy.digest)
            assert seconds < SECONDS
            gone = {"model": second.id, "messages": [{"role": "user", "content": "x"}]}
            assert client.post("/v1/chat/completions", gone).status_code == 404
            with capsys.disabled():
                print(f"\nfrom the ledger's write to the first answer of the previous version: {seconds:.3f} s")
        weed.start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", servers.enter_context(running_server(tmp_path, database)))
        assert Registry.of(home).reconcile(world.ledger, world.tenant, world.experiment) == []
        assert aliases(world) == {"production": "first"}
