"""A real MLflow tracking server on a free loopback port, and a migrated database to copy."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

START_S = 120.0


def migrated_database(folder: Path) -> Path:
    """Make an MLflow database once; copying it spares each test several seconds of migrations."""
    from ratchet.store import Store
    from resources.mlflow_models import Models

    path = folder / "template.db"
    Models(f"sqlite:///{path}", Store(folder / "store"), folder / "files").client.search_experiments()
    return path


@contextlib.contextmanager
def running_server(folder: Path, database: Path) -> Iterator[str]:
    """Start `mlflow server` on `database` with proxied artifacts under `folder`; yield its URL and stop it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    log = folder / "server.log"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{database}", "--artifacts-destination", str(folder / "artifacts")]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with log.open("w") as handle:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=handle, stderr=handle, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_S
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                urllib.request.urlopen(f"{url}/health", timeout=2).close()
                break
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"mlflow server did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
