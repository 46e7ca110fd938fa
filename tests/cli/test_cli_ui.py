"""`ratchet ui`: refuses a port in use at once; serves both and leaves no process behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import free_port
from typer.testing import CliRunner

from ratchet.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0


def test_a_port_in_use_is_refused_by_its_number(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = str(held.getsockname()[1])
        result = CliRunner().invoke(app, ["ui", "--home", str(tmp_path), "--mlflow-port", port, "--dagster-port", port])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: port {port}: ")
    assert "--dagster-port" in result.stderr
    assert list(tmp_path.iterdir()) == []


def followers(home: Path) -> list[int]:
    """Processes that know the home by their environment or their command, this one's relatives aside."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            known = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if str(home).encode() in known and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def fetched(url: str, body: dict[str, object] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return str(answer.read().decode())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The command, once both servers answer, with the addresses it printed."""
    command = [sys.executable, "-m", "ratchet.cli", "ui", "--home", str(tmp_path / "home")]
    command += ["--dagster-port", str(free_port()), "--mlflow-port", str(free_port())]
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path / "dagster")}
    (tmp_path / "dagster").mkdir()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert lines[3] == "Ctrl-C stops them.\n", lines
        yield process, lines[1].split()[1], lines[2].split()[1]
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_both_answer_and_nothing_is_left_behind(
    served: tuple[subprocess.Popen[str], str, str], number: signal.Signals, tmp_path: Path
) -> None:
    process, dagster, mlflow = served
    assert "release_decision" in fetched(f"{dagster}/graphql", {"query": "{ assetNodes { assetKey { path } } }"})
    assert "Default" in fetched(f"{mlflow}/api/2.0/mlflow/experiments/search", {"max_results": 1})
    process.send_signal(number)
    status = process.wait(WAIT_S)
    assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    deadline = time.monotonic() + WAIT_S
    while followers(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert followers(tmp_path) == []
